// The messages of a stream: looked at from a place on, or followed live; with a filter that is checked while typing.
// Nothing here moves an offset.

import { useCallback, useEffect, useMemo, useRef, useState } from "../vendor/hooks.mjs"
import { Component } from "../vendor/preact.mjs"
import { ask, events, named, streamAddress, usePolled } from "../api.mjs"
import { Badge, Card, Copy, Dialog, Empty, FilterBox, Icon, Page, Skeleton, Trouble } from "../components.mjs"
import { bytes, count, counted, exact, moment } from "../format.mjs"
import { html } from "../html.mjs"
import { change, go, href } from "../router.mjs"
import { Opened } from "./message.mjs"
import { asCommand, asPython } from "./search.mjs"
import { Answered } from "./why.mjs"

const LIMIT = 50
/** Rows that are kept while following. */
const MOST_ROWS = 60

export default function Messages({ stream, query }) {
  if (stream === undefined) return html`<${Choose} />`
  return html`<${Of} key=${stream} stream=${stream} query=${query} />`
}

function Choose() {
  const streams = usePolled("streams", { everyMs: 15_000 })
  return html`<${Page} title="Messages" lead="Choose the stream to look into. Looking moves no offset.">
    <${Card} isFlush>
      ${streams.isLoading && html`<${Skeleton} />`}
      ${streams.problem && html`<${Trouble} problem=${streams.problem} />`}
      <ul class="choices">
        ${(streams.data ?? []).filter((row) => !row.error).sort((a, b) => b.messages - a.messages).map(
          (row) => html`<li key=${row.name}><a href=${href(["messages", row.name])}><bdi>${row.name}</bdi><span class="note">${counted(row.messages, "message")}</span></a></li>`,
        )}
      </ul>
      ${streams.data?.length === 0 && html`<${Empty} title="No streams yet" />`}
    </${Card}>
  </${Page}>`
}

/** The search of an address. */
function searchOf(query) {
  return {
    from: query.get("from") ?? "last",
    filter: query.get("filter") ?? "",
    language: query.get("language") ?? "amqp",
    filterValues: query.getAll("filter-value"),
    isFollowed: query.has("follow"),
    limit: Math.min(500, Number(query.get("limit")) || LIMIT),
    open: query.get("open"),
  }
}

function Of({ stream, query }) {
  const search = searchOf(query)
  const [why, setWhy] = useState(null)
  const key = JSON.stringify([search.from, search.filter, search.language, search.filterValues, search.limit])
  return html`<${Page}
    title=${stream}
    crumbs=${[["Messages", href(["messages"])]]}
    actions=${html`<a class="button" href=${href(["streams", stream])}>About this stream</a>`}
  >
    <${Card}><${Search} key=${key} stream=${stream} search=${search} /></${Card}>
    ${search.isFollowed
      ? html`<${Follow} key=${`follow ${key}`} stream=${stream} search=${search} onWhy=${setWhy} />`
      : html`<${Browse} key=${`browse ${key}`} stream=${stream} search=${search} onWhy=${setWhy} />`}
    ${why !== null && html`<${WhyDialog} stream=${stream} offset=${why} search=${search} onClose=${() => setWhy(null)} />`}
  </${Page}>`
}

// the search

const PLACES = [
  ["last", "the newest"],
  ["first", "the first"],
  ["offset", "an offset"],
  ["time", "a time"],
]

function Search({ stream, search }) {
  const kind = /^\d+$/.test(search.from) ? "offset" : ["first", "last", "next"].includes(search.from) ? search.from : "time"
  const [given, setGiven] = useState({
    filter: search.filter,
    language: search.language,
    values: search.filterValues.join(", "),
    kind: kind === "next" ? "last" : kind,
    offset: kind === "offset" ? search.from : "",
    time: kind === "time" ? localTime(search.from) : "",
  })
  const set = (changes) => setGiven((before) => ({ ...before, ...changes }))
  const begin = (isFollowed) => {
    const from = given.kind === "offset" ? given.offset.trim() || "first" : given.kind === "time" ? utcTime(given.time) : given.kind
    go(
      href(["messages", stream], {
        from: isFollowed ? "next" : from,
        filter: given.filter.trim(),
        language: given.filter.trim() && given.language,
        "filter-value": given.values.split(",").map((value) => value.trim()).filter(Boolean),
        limit: search.limit === LIMIT ? null : search.limit,
        follow: isFollowed ? "1" : null,
      }),
    )
  }
  const [checked, setChecked] = useState(null)
  const isWrong = checked?.ok === false
  const server = streamAddress()
  return html`<form
    class="search"
    method="dialog"
    onSubmit=${(event) => {
      event.preventDefault()
      begin(false)
    }}
  >
    <${FilterBox}
      text=${given.filter}
      language=${given.language}
      onText=${(filter) => set({ filter })}
      onLanguage=${(language) => set({ language })}
      onSubmit=${() => begin(search.isFollowed)}
      onChecked=${setChecked}
    />
    <div class="row">
      <label class="field">
        <span>From</span>
        <select value=${given.kind} onChange=${(event) => set({ kind: event.target.value })}>
          ${PLACES.map(([name, title]) => html`<option value=${name} selected=${name === given.kind}>${title}</option>`)}
        </select>
      </label>
      ${given.kind === "offset" &&
      html`<label class="field"><span>Offset</span><input inputmode="numeric" pattern="[0-9]+" value=${given.offset} onInput=${(event) => set({ offset: event.target.value })} /></label>`}
      ${given.kind === "time" &&
      html`<label class="field"><span>Time</span><input type="datetime-local" step="1" required value=${given.time} onInput=${(event) => set({ time: event.target.value })} /></label>`}
      <label class="field grow">
        <span>Filter values of chunks (stage 1)</span>
        <input value=${given.values} placeholder="any; several with commas" autocomplete="off" spellcheck=${false} onInput=${(event) => set({ values: event.target.value })} />
      </label>
      <span class="actions">
        <button type="submit" class="primary" disabled=${isWrong}>Look</button>
        ${search.isFollowed
          ? html`<button type="button" onClick=${() => begin(false)}>Stop following</button>`
          : html`<button type="button" disabled=${isWrong} onClick=${() => begin(true)}><${Icon} name="play" />Follow live</button>`}
      </span>
    </div>
    ${given.kind === "last" && (given.filter.trim() || given.values.trim()) && html`<p class="hint">With a filter, the newest matches among the last ${exact(NEWEST)} offsets are shown. From the first, an offset or a time, all messages up to the end are looked through.</p>`}
    <div class="copies">
      <span class="note">Copy this search</span>
      ${search.filter && html`<${Copy} text=${search.filter} label="Filter" />`}
      ${server &&
      html`<${Copy} text=${() => asCommand(server, stream, search)} label="Command line" />
        <${Copy} text=${() => asPython(server, stream, search)} label="Python" />`}
    </div>
  </form>`
}

function localTime(text) {
  const at = new Date(text)
  if (Number.isNaN(at.getTime())) return ""
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19)
}

const utcTime = (local) => (local ? new Date(local).toISOString() : "first")

const requestOf = ({ from, filter, language, filterValues, limit }) => ({
  from,
  filter,
  language: filter ? language : null,
  filter_value: filterValues,
  ...(limit ? { limit } : {}),
})

// what is found

function Browse({ stream, search, onWhy }) {
  const [state, setState] = useState({ pages: [], problem: null, isAsking: true })
  const given = useRef(null)
  const load = useCallback(async (from, pages) => {
    given.current?.abort()
    given.current = new AbortController()
    setState({ pages, problem: null, isAsking: true })
    try {
      const { signal } = given.current
      const page = await (from === "last" ? newest(stream, search, signal) : pageOf(stream, search, from, signal))
      setState({ pages: [...pages, page], problem: null, isAsking: false })
    } catch (problem) {
      if (problem.name !== "AbortError") setState({ pages, problem, isAsking: false })
    }
  }, [])
  useEffect(() => {
    load(search.from, [])
    return () => given.current?.abort()
  }, [])
  const { pages, problem, isAsking } = state
  const rows = useMemo(() => pages.flatMap((page) => page.messages), [pages])
  const last = pages.at(-1)
  const isFiltered = Boolean(search.filter || search.filterValues.length)
  return html`
    ${last && html`<${Stages} of=${summed(pages.map((page) => page.counters))} isFiltered=${isFiltered} />`}
    ${problem && html`<${Trouble} problem=${problem} retry=${() => load(last?.next_from ?? search.from, pages)} />`}
    ${isAsking && !pages.length && html`<${Card}><${Skeleton} lines=${6} /></${Card}>`}
    ${last &&
    html`<${Card} isFlush>
      <h2 class="sr-only">Messages</h2>
      <${Rows} rows=${rows} stream=${stream} open=${search.open} onWhy=${onWhy} label="Messages" />
      ${rows.length === 0 && html`<${Empty} title=${last.is_end ? "No message matches" : "No match so far"}><p>${!last.is_end ? "The time for one answer was over: look further." : search.from === "last" && isFiltered ? `The last ${exact(NEWEST)} offsets were looked through; there may be older matches.` : "The stream was looked at to its end."}</p></${Empty}>`}
      <div class="table-foot" role="status">
        <span>${counted(rows.length, "message")}${last.is_end ? ", the end of the stream" : ""}</span>
        <span class="actions">
        ${rows.length > 0 && rows[0].offset > 0 && html`<a class="button" href=${href(["messages", stream], olderOf(search, rows[0].offset))}>Older</a>`}
        ${last.next_from !== null &&
        html`<button type="button" disabled=${isAsking} onClick=${() => load(last.next_from, pages)}>${isAsking ? "Looking …" : last.is_end ? "Look for newer ones" : "Next"}</button>`}
        </span>
      </div>
    </${Card}>`}
  `
}

function olderOf({ filter, language, filterValues, limit }, offset) {
  const step = filter || filterValues.length ? NEWEST : limit
  return { from: Math.max(0, offset - step), filter, language: filter && language, "filter-value": filterValues, limit: limit === LIMIT ? null : limit }
}

const pageOf = (stream, search, from, signal) => ask(named`streams/${stream}/messages`, { query: { ...requestOf(search), from }, signal })

/** How many of the newest offsets are looked through for matches of a filter. */
const NEWEST = 10_000
/** The most messages of an answer. */
const MOST_LISTED = 500
const MOST_ANSWERS = 40

/** The newest messages, or the newest that match. Streams are read forwards: from further back, until there are enough. */
async function newest(stream, search, signal) {
  const row = (await ask("streams", { signal })).find((one) => one.name === stream)
  if (!row || row.error) return pageOf(stream, search, "last", signal)
  const isFiltered = Boolean(search.filter || search.filterValues.length)
  if (!isFiltered) return pageOf(stream, search, Math.max(row.first_offset, row.next_offset - search.limit), signal)
  const pages = []
  for (const step of [MOST_LISTED, 5 * MOST_LISTED, NEWEST]) {
    pages.length = 0
    let from = Math.max(row.first_offset, row.next_offset - step)
    const isWhole = from === row.first_offset
    do {
      pages.push(await pageOf(stream, { ...search, limit: MOST_LISTED }, from, signal))
      from = pages.at(-1).next_from
    } while (!pages.at(-1).is_end && from !== null && pages.length < MOST_ANSWERS)
    if (isWhole || pages.reduce((sum, page) => sum + page.messages.length, 0) >= search.limit) break
  }
  const messages = pages.flatMap((page) => page.messages).slice(-search.limit)
  return { ...pages.at(-1), messages, counters: summed(pages.map((page) => page.counters)) }
}

function Follow({ stream, search, onWhy }) {
  const [state, setState] = useState({ rows: [], matched: 0, shown: 0, counters: null, lag: null, problem: null, isOpen: false, isOver: false })
  const [isPaused, setPaused] = useState(false)
  const paused = useRef(false)
  paused.current = isPaused
  const [turn, setTurn] = useState(0)
  useEffect(() => {
    const given = new AbortController()
    const follow = async () => {
      try {
        for await (const { event, data } of events(named`streams/${stream}/follow`, requestOf({ ...search, limit: null }), given.signal)) {
          if (event === "error") throw Object.assign(new Error(data.detail), { status: data.status, text: data.text, span: data.span })
          if (event === "open") setState((before) => ({ ...before, isOpen: true }))
          if (event === "batch") setState((before) => added(before, data, paused.current))
        }
        setState((before) => ({ ...before, isOver: true }))
      } catch (problem) {
        if (!given.signal.aborted) setState((before) => ({ ...before, problem }))
      }
    }
    follow()
    return () => given.abort()
  }, [turn])
  // Who opens a row reads it: what comes next does not push it away.
  const pause = useCallback(() => setPaused(true), [])
  const again = () => {
    setState((before) => ({ ...before, problem: null, isOpen: false, isOver: false }))
    setTurn(turn + 1)
  }
  return html`
    ${state.counters && html`<${Stages} of=${state.counters} isFiltered=${Boolean(search.filter || search.filterValues.length)} />`}
    ${state.problem && html`<${Trouble} problem=${state.problem} retry=${again} />`}
    ${state.isOver && html`<p class="stale" role="status">The server ended this. <button type="button" onClick=${again}>Follow again</button></p>`}
    <${Card} isFlush>
      <h2 class="sr-only">Messages</h2>
      <div class="live" data-live=${state.isOpen && !isPaused && !state.problem && !state.isOver}>
        <span class="live-state"><i aria-hidden="true"></i>${isPaused ? "paused" : state.isOpen ? "live" : "beginning"}</span>
        <${LiveWords} of=${state} />
        <button type="button" aria-pressed=${isPaused} onClick=${() => setPaused(!isPaused)}><${Icon} name=${isPaused ? "play" : "pause"} />${isPaused ? "Go on" : "Pause"}</button>
      </div>
      <${Rows} rows=${state.rows} stream=${stream} open=${null} onWhy=${onWhy} onOpened=${pause} label="Newest messages first" />
      ${state.isOpen && state.rows.length === 0 && html`<${Empty} title="Waiting for messages"><p>New messages${search.filter ? " that match" : ""} appear here.</p></${Empty}>`}
    </${Card}>
  `
}

function added(before, batch, isPaused) {
  const rows = isPaused ? before.rows : [...batch.messages.slice(-MOST_ROWS).toReversed(), ...before.rows].slice(0, MOST_ROWS)
  return {
    ...before,
    rows,
    matched: before.matched + batch.matched,
    shown: before.shown + batch.shown,
    missed: isPaused ? (before.missed ?? 0) + batch.matched : 0,
    sampled: batch.shown < batch.matched ? batch : null,
    counters: batch.counters,
    lag: batch.lag,
  }
}

const SAID_MS = 5000

/** What is going on; said to readers of the screen every five seconds only. */
function LiveWords({ of }) {
  const words = [
    `${counted(of.matched, "message")} so far`,
    of.sampled && `a sample is shown: ${exact(of.sampled.shown)} of the last ${exact(of.sampled.matched)}`,
    of.missed > 0 && `${counted(of.missed, "message")} came since the pause`,
    of.lag > 0 && `${counted(of.lag, "message")} behind`,
  ].filter(Boolean)
  const text = words.join("; ")
  const [said, setSaid] = useState(text)
  const newest = useRef(text)
  newest.current = text
  useEffect(() => {
    const timer = setInterval(() => setSaid(newest.current), SAID_MS)
    return () => clearInterval(timer)
  }, [])
  return html`<span class="live-words">${text}</span><span class="sr-only" role="status">${said}</span>`
}

function summed(all) {
  const sum = {}
  for (const counters of all) {
    for (const [name, value] of Object.entries(counters)) {
      if (typeof value === "number") sum[name] = (sum[name] ?? 0) + value
    }
  }
  return sum
}

/** What each stage did for this search: examined, skipped, kept. */
function Stages({ of, isFiltered }) {
  const chunks = of.chunks_examined ?? 0
  const parts = [
    ["Stage 1", `${exact(of.chunks_skipped ?? 0)} of ${counted(chunks, "chunk")} skipped`, of.bytes_skipped ? `${bytes(of.bytes_skipped)} not read` : "by filter value and indexes"],
    ["Stage 2", `${count(of.messages_examined ?? 0)} looked at`, isFiltered ? "by the filter expression" : "no filter: each is kept"],
    ["Matched", counted(of.messages_kept ?? 0, "message"), of.messages_examined ? `${Math.round((1000 * of.messages_kept) / of.messages_examined) / 10}\u00a0% of those` : ""],
  ]
  return html`<dl class="stages" aria-label="What each stage did">
    ${parts.map(([name, value, note]) => html`<div><dt>${name}</dt><dd>${value}<small>${note}</small></dd></div>`)}
  </dl>`
}

// rows

function Rows({ rows, stream, open, onWhy, onOpened, label }) {
  if (!rows.length) return null
  return html`<div class="messages" role="list" aria-label=${label}>
    ${rows.map((row) => html`<${Row} key=${row.offset} row=${row} stream=${stream} isOpenFirst=${String(row.offset) === open} onWhy=${onWhy} onOpened=${onOpened} />`)}
  </div>`
}

/** A message in a line; a click opens it. A row never changes, so it is drawn again only when it is opened or closed. */
class Row extends Component {
  constructor(props) {
    super(props)
    this.state = { isOpen: props.isOpenFirst }
  }

  shouldComponentUpdate(_, state) {
    return state.isOpen !== this.state.isOpen
  }

  toggle = () => {
    if (!this.state.isOpen) this.props.onOpened?.()
    this.setState({ isOpen: !this.state.isOpen })
  }

  render({ row, stream, onWhy }, { isOpen }) {
    const properties = row.message.properties ?? {}
    const id = `message-${row.offset}`
    const title = properties.subject ?? properties["message-id"] ?? row.body?.text ?? ""
    return html`<div class="message" role="listitem" data-open=${isOpen}>
      <div class="message-line">
        <button type="button" class="quiet message-toggle" aria-expanded=${isOpen} aria-controls=${id} onClick=${this.toggle}>
          <${Icon} name="chevron" /><span class="sr-only">Message </span><span class="message-offset">${exact(row.offset)}</span>
        </button>
        <time class="message-time" datetime=${isoOf(row.timestamp_ms)}>${moment(row.timestamp_ms)}</time>
        <span class="message-title" onClick=${this.toggle}><bdi>${brief(title)}</bdi> <span class="note"><bdi>${briefly(row.message)}</bdi></span></span>
        <span class="message-value">${row.filter_value !== null && row.filter_value !== undefined && html`<${Badge} title="filter value"><bdi>${brief(row.filter_value, 40)}</bdi></${Badge}>`}</span>
        <span class="message-size">${bytes(row.body?.size_bytes)}</span>
        <button type="button" class="quiet message-why" onClick=${() => onWhy(row.offset)}>Why not?<span class="sr-only"> Message ${row.offset}</span></button>
      </div>
      <div id=${id}>${isOpen && html`<${Opened} row=${row} stream=${stream} onFilter=${addClause} />`}</div>
    </div>`
  }
}

function isoOf(milliseconds) {
  const at = new Date(milliseconds)
  return Number.isNaN(at.getTime()) ? undefined : at.toISOString()
}

const brief = (value, most = 120) => {
  const text = String(value)
  return text.length > most ? `${text.slice(0, most)}…` : text
}

/** Id and application properties in a line. */
function briefly({ properties = {}, application_properties: own = {} }) {
  const id = properties.subject !== undefined && properties["message-id"] !== undefined ? [["id", properties["message-id"]]] : []
  const parts = [...id, ...Object.entries(own ?? {})].slice(0, 8)
  return brief(parts.map(([name, value]) => `${brief(name, 30)}=${brief(typeof value === "object" ? JSON.stringify(value) : value, 40)}`).join("  "), 200)
}

/** Add a clause to the filter of the address, so that only such messages are looked for. */
function addClause(clause) {
  const query = new URLSearchParams(location.hash.split("?")[1] ?? "")
  const before = query.get("filter")
  change({ filter: before ? `(${before}) AND ${clause}` : clause, language: query.get("language") ?? "amqp", open: null })
}

function WhyDialog({ stream, offset, search, onClose }) {
  const filter = search.filter ? { filter: search.filter, filter_language: search.language } : {}
  const values = search.filterValues.length ? { filter_values: search.filterValues } : {}
  const isAsked = Boolean(search.filter || search.filterValues.length)
  const [isFilter, setFilter] = useState(false)
  const question = { name: stream, offset, ...(isFilter ? { ...filter, ...values } : {}) }
  return html`<${Dialog} title=${`Why not? Message ${exact(offset)}`} onClose=${onClose} isWide>
    <div class="dialog-body page">
      ${isAsked &&
      html`<div class="actions">
        <button type="button" aria-pressed=${!isFilter} onClick=${() => setFilter(false)}>For everyone who reads</button>
        <button type="button" aria-pressed=${isFilter} onClick=${() => setFilter(true)}>For the filter of this search</button>
      </div>`}
      <${Answered} key=${String(isFilter)} question=${question} />
      <p><a href=${href(["why"], { name: stream, offset })}>Open as a page of its own</a></p>
    </div>
  </${Dialog}>`
}
