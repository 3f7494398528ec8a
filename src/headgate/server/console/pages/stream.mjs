// One stream: what it holds, who writes and reads, how well stage 1 can skip, and its limits.

import { useMemo, useState } from "../vendor/hooks.mjs"
import { ask, named, useAsked, usePolled } from "../api.mjs"
import {
  Ago, Badge, Bars, Card, Chart, Confirm, Dialog, Empty, Facts, Form, Loaded, Meter, Page, Stat, Stats, Table, Tabs, Time, UnreadableBodies, toast, useTab,
} from "../components.mjs"
import { byteRate, bytes, count, counted, duration, exact, percent, plain, rate } from "../format.mjs"
import { html } from "../html.mjs"
import { go, href } from "../router.mjs"
import { ConsumerTable } from "./consumers.mjs"
import { LimitFields, argumentsOf, keeps } from "./streams.mjs"

export default function Stream({ stream }) {
  const [dialog, setDialog] = useState(null)
  const streams = usePolled("streams")
  const consumers = usePolled("consumers")
  const detail = useAsked(named`streams/${stream}`)
  const row = streams.data?.find((one) => one.name === stream)
  const readers = useMemo(() => (consumers.data ?? []).filter((one) => one.stream === stream), [consumers.data, stream])
  const tabs = [
    { id: "storage", title: "Storage" },
    { id: "consumers", title: "Consumers", count: consumers.data && readers.length },
    { id: "publishers", title: "Publishers", count: row?.publishers },
    { id: "bloom", title: "Chunks and Bloom filter" },
    { id: "settings", title: "Settings" },
  ]
  const tab = useTab(tabs)
  const actions = html`
    <a class="button primary" href=${href(["messages", stream])}>Messages</a>
    <button type="button" onClick=${() => setDialog("limits")}>Change limits</button>
    <button type="button" onClick=${() => setDialog("delete")}>Delete</button>
  `
  return html`<${Page} title=${stream} crumbs=${[["Streams", href(["streams"])]]} actions=${actions}>
    ${row?.error && html`<p class="stale" role="alert"><bdi>${row.error}</bdi></p>`}
    ${streams.data && !row && html`<p class="stale" role="alert">This stream is not in your list: it was deleted, or you may not read it.</p>`}
    ${row && !row.error && html`<${Numbers} row=${row} readers=${readers} /><${UnreadableBodies} of=${row.reading} />`}
    <${Tabs} tabs=${tabs} />
    ${tab === "storage" && html`<${Storage} stream=${stream} />`}
    ${tab === "consumers" &&
    html`<${Card} isFlush><${Loaded} of=${consumers}>${() => html`<${ConsumerTable} rows=${readers} isOfOneStream />`}</${Loaded}></${Card}>
      <${Offsets} stream=${stream} />`}
    ${tab === "publishers" && html`<${Loaded} of=${detail}>${(data) => html`<${Publishers} of=${data} row=${row} />`}</${Loaded}>`}
    ${tab === "bloom" && html`<${Bloom} stream=${stream} />`}
    ${tab === "settings" && html`<${Loaded} of=${detail}>${(data) => html`<${Settings} of=${data} />`}</${Loaded}>`}
    ${dialog === "limits" && html`<${Limits} stream=${stream} of=${row?.arguments ?? {}} onClose=${() => setDialog(null)} onDone=${() => (streams.reload(), detail.reload())} />`}
    ${dialog === "delete" && html`<${Delete} stream=${stream} row=${row} onClose=${() => setDialog(null)} />`}
  </${Page}>`
}

function Numbers({ row, readers }) {
  const lag = readers.reduce((most, one) => Math.max(most, one.lag ?? 0), 0)
  const { bytes_skipped: skipped, bytes_read: read, messages_evaluated: evaluated, messages_matched: matched } = row.reading
  return html`<${Stats}>
    <${Stat} label="Messages" value=${count(row.messages)} note=${`offsets ${exact(row.first_offset)} to ${exact(row.next_offset - 1)}`} />
    <${Stat} label="Size" value=${bytes(row.size_bytes)} note=${`keeps ${keeps(row.arguments)}`} />
    <${Stat} label="Worst lag" value=${count(lag)} note=${`of ${counted(readers.length, "consumer")}`} />
    <${Stat} label="Not read" value=${percent(skipped + read ? skipped / (skipped + read) : null)} note=${`${bytes(skipped)} spared by stage 1 and indexes`} />
    <${Stat} label="Kept by stage 2" value=${percent(evaluated ? matched / evaluated : null)} note=${`of ${counted(evaluated, "message")} looked at`} />
  </${Stats}>`
}

// storage

function Storage({ stream }) {
  const segments = usePolled(named`streams/${stream}/segments`, { everyMs: 15_000 })
  const history = usePolled("history", { query: { stream } })
  return html`
    ${history.data && html`<${Rates} of=${history.data} />`}
    <${Loaded} of=${segments}>
      ${(data) => html`
        <${Card} title="Segments" note=${segmentNote(data)}>
          <${TimeLine} segments=${data.segments} pins=${data.pinned_by} />
        </${Card}>
          <${Card} title="Retention" note="what may be deleted, and what keeps it">
            <p>Keeps ${keeps(data.retention)}.</p>
            ${data.pinned_by.length > 0
              ? html`<h3>Pinned by</h3>
                  <ul class="pins">${data.pinned_by.map((one) => html`<li><span><bdi>${one.name}</bdi> <span class="note">${one.kind}</span></span><span>from offset ${exact(one.offset)}</span></li>`)}</ul>`
              : html`<p class="note">Nothing holds messages back.</p>`}
          </${Card}>
        <${Card} title="Each segment" isFlush><${Segments} of=${data.segments} /></${Card}>
      `}
    </${Loaded}>
  `
}

function Rates({ of: { times_ms: times, series } }) {
  const line = (name, label, show) => ({ label, show, values: series[name] ?? [] })
  return html`<div class="grid two">
    <${Card} title="Messages" note="per second"><${Chart} title="Messages per second" times=${times} series=${[line("published_per_s", "published", rate), line("delivered_per_s", "delivered", rate)]} /></${Card}>
    <${Card} title="Spared by stage 1" note="chunks that were not read"><${Chart} title="Bytes spared per second" times=${times} series=${[{ ...line("stage_1_spared_bytes_per_s", "not read", byteRate), colour: "--series-2" }]} /></${Card}>
  </div>`
}

function segmentNote({ segments, num_segments: all }) {
  const remote = segments.filter((one) => one.place === "remote").length
  return `${counted(all, "segment")}${all > segments.length ? `, the newest ${exact(segments.length)} of them here` : ""}${remote ? `, ${remote} in object storage` : ""}`
}

const titled = (name) => {
  const words = name.replace(/_(ms|s|bytes)$/, "").replaceAll(/[_-]/g, " ")
  return words[0].toUpperCase() + words.slice(1)
}

function shownOf(name, value) {
  if (value === null) return "no limit"
  if (/bytes$/.test(name)) return bytes(Number(value))
  if (/_ms$/.test(name)) return duration(value)
  if (/_s$/.test(name)) return duration(value * 1000)
  return html`<bdi>${typeof value === "number" ? exact(value) : plain(value)}</bdi>`
}

const LEGEND = [
  ["local", "sealed"],
  ["open", "being written"],
  ["remote", "in object storage"],
  ["pinned", "pinned"],
]

/** Segments as bars over time: width is time, height is size. Each is named to readers of the screen by the table below. */
function TimeLine({ segments, pins }) {
  const known = segments.filter((one) => one.first_timestamp_ms !== null)
  if (!known.length) return html`<${Empty} title="No messages yet" />`
  const [from, to] = [known[0].first_timestamp_ms, Math.max(...known.map((one) => one.last_timestamp_ms))]
  const span = Math.max(1, to - from)
  const largest = Math.max(...known.map((one) => one.size_bytes))
  // With very many segments neighbours are drawn as one.
  const step = Math.ceil(known.length / 300)
  const drawn = Array.from({ length: Math.ceil(known.length / step) }, (_, at) => known.slice(at * step, (at + 1) * step))
  const least = Math.min(...pins.map((one) => one.offset))
  const kindOf = (first, last) => (first.place === "remote" ? "remote" : first.is_open ? "open" : last.next_offset > least ? "pinned" : "local")
  const kinds = new Set(drawn.map((part) => kindOf(part[0], part.at(-1))))
  return html`
    <div class="time-line" aria-hidden="true">
      ${drawn.map((part) => {
        const [first, last] = [part[0], part.at(-1)]
        const left = (100 * (first.first_timestamp_ms - from)) / span
        const width = Math.max(0.3, (100 * (last.last_timestamp_ms - first.first_timestamp_ms)) / span)
        const size = part.reduce((sum, one) => sum + one.size_bytes, 0) / part.length
        return html`<i
          data-kind=${kindOf(first, last)}
          title=${`offsets ${exact(first.first_offset)} to ${exact(last.next_offset - 1)}, ${bytes(size)}`}
          style=${{ left: `${Math.min(left, 99.7)}%`, width: `${Math.min(width, 100 - Math.min(left, 99.7))}%`, height: `${Math.max(12, (100 * size) / largest)}%` }}
        ></i>`
      })}
    </div>
    <p class="time-line-ends" aria-hidden="true"><span><${Time} ms=${from} date="always" /></span><span><${Time} ms=${to} date="always" /></span></p>
    <p class="legend note">${LEGEND.filter(([kind]) => kinds.has(kind)).map(([kind, words]) => html`<span><i data-kind=${kind}></i>${words}</span>`)}</p>
  `
}

function Segments({ of }) {
  const columns = useMemo(
    () => [
      { id: "offset", title: "Offsets", value: (row) => row.first_offset, render: (row) => `${exact(row.first_offset)} – ${exact(Math.max(row.first_offset, row.next_offset - 1))}` },
      { id: "from", title: "First message", value: (row) => row.first_timestamp_ms, render: (row) => html`<${Time} ms=${row.first_timestamp_ms} />` },
      { id: "to", title: "Last message", value: (row) => row.last_timestamp_ms, render: (row) => html`<${Time} ms=${row.last_timestamp_ms} />` },
      { id: "messages", title: "Messages", isNumber: true, value: (row) => row.messages },
      { id: "chunks", title: "Chunks", isNumber: true, value: (row) => row.chunks },
      { id: "bytes", title: "Size", isNumber: true, value: (row) => row.size_bytes, render: (row) => bytes(row.size_bytes) },
      { id: "place", title: "Where", value: (row) => (row.is_open ? "being written" : row.place === "remote" ? "object storage" : "this machine") },
    ],
    [],
  )
  return html`<${Table} id="segments" caption="segments" columns=${columns} rows=${of} keyOf=${(row) => row.first_offset} isFiltered=${false} pageRows=${20} />`
}

// the other tabs

function Offsets({ stream }) {
  const offsets = usePolled("offsets", { everyMs: 15_000 })
  return html`<${Card} title="Stored offsets" note="where consumers go on when they come back" isFlush>
    <${Loaded} of=${offsets}>
      ${(rows) => html`<${Table}
        id="stored"
        caption="stored offsets"
        columns=${[
          { id: "name", title: "Name", isWide: true, value: (row) => row.name },
          { id: "offset", title: "Offset", isNumber: true, value: (row) => row.stored_offset, render: (row) => exact(row.stored_offset) },
          { id: "lag", title: "Messages behind it", isNumber: true, value: (row) => row.lag },
        ]}
        rows=${rows.filter((row) => row.stream === stream && !row.error)}
        keyOf=${(row) => row.name}
        empty=${html`<${Empty} title="No consumer stored an offset" />`}
      />`}
    </${Loaded}>
  </${Card}>`
}

function Publishers({ of, row }) {
  const { counters } = of
  return html`
    <${Card} title="Written since the server started">
      <${Facts}
        of=${[
          ["Connected publishers", exact(row?.publishers ?? 0)],
          ["Messages published", exact(counters.messages_published)],
          ["Confirmed", exact(counters.messages_confirmed)],
          ["Duplicates dropped", exact(counters.messages_duplicate)],
          ["Refused", exact(counters.messages_refused)],
          ["Chunks", html`${exact(counters.chunks_written)}, ${bytes(counters.chunks_written ? counters.bytes_written / counters.chunks_written : null)} each`],
          ["Errors of the disk", exact(counters.write_errors)],
        ]}
      />
    </${Card}>
    <${Card} title="Named publishers" note="their messages are stored once, also when they are sent again" isFlush>
      <${Table}
        caption="named publishers"
        columns=${[
          { id: "name", title: "Name", isWide: true, value: (one) => one[0] },
          { id: "sequence", title: "Last publishing id", isNumber: true, value: (one) => one[1], render: (one) => exact(one[1]) },
        ]}
        rows=${Object.entries(of.publishers)}
        keyOf=${(one) => one[0]}
        empty=${html`<${Empty} title="No publisher has a name" />`}
      />
    </${Card}>
  `
}

function Bloom({ stream }) {
  const bloom = useAsked(named`streams/${stream}/bloom`)
  return html`<${Loaded} of=${bloom}>
    ${(data) => {
      const [measured, theoretical] = [data.measured_false_positives, data.theoretical_false_positives]
      const isWorse = measured !== null && measured > 0.05 && measured > 2 * (theoretical ?? 0)
      return html`<div class="grid two">
        <${Card} title="How well stage 1 can skip" note="from the filters of the newest chunks">
          <div class="meters">
            <${Meter} label="Bits that are set" share=${data.fill_ratio ?? 0} text=${percent(data.fill_ratio)} tone=${data.fill_ratio > 0.5 ? "warn" : undefined} />
            <${Meter} label="Chunks read for nothing, measured" share=${measured ?? 0} text=${percent(measured)} tone=${isWorse ? "bad" : undefined} />
            <${Meter} label="Chunks read for nothing, in theory" share=${theoretical ?? 0} text=${percent(theoretical)} />
          </div>
          <${Facts} of=${[["Chunks looked at", exact(data.chunks)], ["Chunks without filter values", percent(data.unfiltered_ratio)], ["Filter of a chunk", bytes(data.filter_size_bytes)], ["Filter values in a chunk", valuesOf(data.values_per_chunk)]]} />
        </${Card}>
        <${Card} title="Advice">
          ${data.advice.length
            ? html`<ul class="advice">${data.advice.map((one) => html`<li><bdi>${one}</bdi></li>`)}</ul>`
            : html`<p>Nothing to improve: the filters are large enough for the values in their chunks.</p>`}
        </${Card}>
        <${Card} title="Chunk sizes" note="how many of the newest chunks have at most this size">
          ${data.chunk_sizes.length
            ? html`<${Bars} title="Chunks by size" of=${withoutEnds(data.chunk_sizes).map((one) => ({ label: `≤ ${bytes(one.up_to_bytes)}`, value: one.chunks, text: exact(one.chunks) }))} />`
            : html`<${Empty} title="No chunks yet" />`}
        </${Card}>
      </div>`
    }}
  </${Loaded}>`
}

/** Without the sizes at both ends that no chunk has. */
function withoutEnds(sizes) {
  const has = (one) => one.chunks > 0
  return sizes.slice(Math.max(0, sizes.findIndex(has)), sizes.findLastIndex(has) + 1)
}

function valuesOf(given) {
  if (given === null || given === undefined) return "–"
  if (typeof given === "number") return exact(Math.round(given * 10) / 10)
  return Object.entries(given).map(([name, value]) => `${titled(name).toLowerCase()} ${exact(value)}`).join(", ")
}

function Settings({ of }) {
  return html`<${Card} title="Settings">
    <${Facts}
      of=${[
        ["Keeps", keeps(of.arguments)],
        ...Object.entries(of.arguments).filter(([name]) => !["max-age", "max-length-bytes"].includes(name)).map(([name, value]) => [titled(name), shownOf(name.replaceAll("-", "_"), value)]),
        ["Identity", html`<code>${of.identity}</code>`],
        ["First message", html`<${Time} ms=${of.first_timestamp_ms} date="always" />`],
        ["Last message", html`<${Ago} ms=${of.last_timestamp_ms} />`],
        ["Chunks", of.chunks === null ? "–" : exact(of.chunks)],
        ["Messages in a chunk", of.messages_per_chunk === null ? "–" : exact(of.messages_per_chunk)],
        ["Filter of a chunk", bytes(of.filter_size_bytes)],
        ...(of.body_schema ? [["Schema of bodies", html`<bdi>${plain(of.body_schema)}</bdi>, ${bytes(of.body_schema_bytes)}`]] : []),
        ["Filter value", of.filter_source ? html`<bdi>${plain(of.filter_source)}</bdi>` : "set by publishers"],
        ["Derived files", bytes(of.derived_bytes)],
        ["Held back by subscriptions", bytes(of.pinned_bytes)],
      ]}
    />
  </${Card}>`
}

// changes

function Limits({ stream, of, onClose, onDone }) {
  const [form, setForm] = useState(null)
  const change = async () => {
    await ask(named`streams/${stream}`, { method: "PUT", body: { arguments: argumentsOf(form.closest("form")) } })
    toast("The limits are changed.")
    onDone()
    onClose()
  }
  return html`<${Dialog} title=${html`Limits of <bdi>${stream}</bdi>`} onClose=${onClose}>
    <${Form} verb="Change" onSubmit=${change}>
      <div class="fields" ref=${setForm}><${LimitFields} of=${of} /></div>
      <p class="hint">Smaller limits delete whole segments at once, the oldest first. Messages that a subscription still needs are kept.</p>
    </${Form}>
  </${Dialog}>`
}

function Delete({ stream, row, onClose }) {
  const [isForced, setForced] = useState(false)
  const isUsed = row && (row.publishers > 0 || row.consumers > 0)
  const remove = async () => {
    await ask(named`streams/${stream}`, { method: "DELETE", query: { force: isForced ? "true" : null } })
    toast(`Stream ${stream} is deleted.`)
    go(href(["streams"]))
  }
  return html`<${Confirm} title="Delete this stream?" verb="Delete" word=${stream} onConfirm=${remove} onClose=${onClose}>
    <p>${row?.messages !== undefined ? html`Its ${counted(row.messages, "message")} are gone for good.` : "Its messages are gone for good."}</p>
    ${(isUsed || row?.error) &&
    html`<label class="check"><input type="checkbox" checked=${isForced} onChange=${(event) => setForced(event.target.checked)} />
      ${row?.error ? "Delete it although it is damaged" : html`Also while ${counted(row.publishers, "publisher")} and ${counted(row.consumers, "consumer")} use it; they are told`}</label>`}
  </${Confirm}>`
}
