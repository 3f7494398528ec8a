// What the server does now, and did in the last 15 minutes.

import { usePolled } from "../api.mjs"
import { Badge, Card, Chart, Empty, Facts, Loaded, Page, Stat, Stats, Table } from "../components.mjs"
import { byteRate, bytes, count, counted, percent, rate } from "../format.mjs"
import { html } from "../html.mjs"
import { href } from "../router.mjs"

export default function Overview() {
  const overview = usePolled("overview")
  const history = usePolled("history")
  const streams = usePolled("streams")
  return html`<${Page} title="Overview">
    <${Loaded} of=${history}>${(data) => html`<${Numbers} history=${data} overview=${overview.data} />`}</${Loaded}>
    <div class="grid two">
      <${Card} title="Busiest streams" isFlush actions=${html`<a href=${href(["streams"])}>All streams</a>`}>
        <${Loaded} of=${streams}>${(rows) => html`<${Busiest} rows=${rows} />`}</${Loaded}>
      </${Card}>
      <${Card} title="This server">
        <${Loaded} of=${overview}>${(data) => html`<${Server} of=${data} />`}</${Loaded}>
      </${Card}>
    </div>
  </${Page}>`
}

/** A number for each series with the change within the history, and a chart for those that are looked at together. */
function Numbers({ history }) {
  const { times_ms: times, series } = history
  const now = (name) => series[name]?.findLast((one) => one !== null) ?? null
  const chart = (title, lines, note) =>
    html`<${Card} title=${title} note=${note} key=${title}><${Chart} title=${title} times=${times} series=${lines.map(([name, label, show, colour]) => ({ label, show, colour, values: series[name] ?? [] }))} /></${Card}>`
  const trend = (name, show) => html`<${Trend} values=${series[name] ?? []} show=${show} />`
  const failing = now("rule_failures_per_s")
  const dead = now("dead_letters")
  const heldBack = now("held_back_connections")
  return html`
    <${Stats}>
      <${Stat} label="Published" value=${rate(now("published_per_s"))} note=${trend("published_per_s", rate)} />
      <${Stat} label="Delivered" value=${rate(now("delivered_per_s"))} note=${trend("delivered_per_s", rate)} />
      <${Stat} label="Spared by stage 1" value=${byteRate(now("stage_1_spared_bytes_per_s"))} note=${trend("stage_1_spared_bytes_per_s", byteRate)} />
      <${Stat} label="Worst lag" to=${href(["consumers"], { sort: "-lag" })} value=${count(now("worst_lag"))} note=${trend("worst_lag", count)} />
      <${Stat} label="Dead letters" value=${count(dead)} tone=${dead > 0 ? "warn" : undefined} note=${trend("dead_letters", count)} />
      <${Stat} label="Failing rules" value=${rate(failing)} tone=${failing > 0 ? "bad" : undefined} note=${trend("rule_failures_per_s", rate)} />
      <${Stat} label="Held back" value=${count(heldBack)} tone=${heldBack > 0 ? "warn" : undefined} note=${html`of ${counted(now("connections"), "connection")}`} />
    </${Stats}>
    <div class="grid charts">
      ${chart("Messages", [["published_per_s", "published", rate], ["delivered_per_s", "delivered", rate]], "per second")}
      ${chart("Bytes", [["published_bytes_per_s", "published", byteRate], ["delivered_bytes_per_s", "delivered", byteRate]], "per second")}
      ${chart("Spared by stage 1", [["stage_1_spared_bytes_per_s", "not read", byteRate, "--series-2"]], "chunks skipped")}
      ${chart("Removed by stage 2", [["stage_2_removed_per_s", "not sent", rate, "--series-2"]], "by expressions")}
      ${chart("Worst lag", [["worst_lag", "messages behind", count, "--series-3"]], "of all consumers")}
      ${chart("Dead letters", [["dead_letters", "waiting", count, "--bad"]], "in all subscriptions and queues")}
      ${chart("Failing rules", [["rule_failures_per_s", "failures", rate, "--bad"]], "filters and actions")}
      ${chart("Connections", [["connections", "open", count], ["consumers", "consumers", count], ["held_back_connections", "held back", count]], "")}
    </div>
  `
}

/** What changed since the beginning of the history. */
function Trend({ values, show }) {
  const known = values.filter((one) => one !== null)
  if (!known.length) return "not measured yet"
  if (known.length < 4) return "measured since just now"
  const mean = (part) => part.reduce((sum, one) => sum + one, 0) / part.length
  const third = Math.max(1, Math.floor(known.length / 3))
  const [before, after] = [mean(known.slice(0, third)), mean(known.slice(-third))]
  if (Math.abs(after - before) <= 0.05 * Math.max(Math.abs(before), Math.abs(after))) return `steady, at most ${show(Math.max(...known))}`
  return `${after > before ? "▲ rising" : "▼ falling"}, at most ${show(Math.max(...known))}`
}

function Busiest({ rows }) {
  const largest = rows.filter((row) => !row.error).sort((a, b) => b.messages - a.messages).slice(0, 8)
  const damaged = rows.filter((row) => row.error)
  return html`
    ${damaged.map((row) => html`<p class="stale" key=${row.name}><a href=${href(["streams", row.name])}><bdi>${row.name}</bdi></a>: <bdi>${row.error}</bdi></p>`)}
    <${Table}
      caption="busiest streams"
      isFiltered=${false}
      rows=${largest}
      keyOf=${(row) => row.name}
      empty=${html`<${Empty} title="No streams yet"><p><a href=${href(["streams"], { new: "1" })}>Create one</a>, or let a client declare it.</p></${Empty}>`}
      columns=${[
        { id: "name", title: "Stream", value: (row) => row.name, render: (row) => html`<a href=${href(["streams", row.name])}><bdi>${row.name}</bdi></a>` },
        { id: "messages", title: "Messages", isNumber: true, value: (row) => row.messages },
        { id: "size", title: "Size", isNumber: true, value: (row) => row.size_bytes, render: (row) => bytes(row.size_bytes) },
        { id: "consumers", title: "Consumers", isNumber: true, value: (row) => row.consumers },
        {
          id: "spared",
          title: "Not read",
          isNumber: true,
          value: sparedOf,
          render: (row) => html`<span title="Share of the bytes that consumers did not have to read">${percent(sparedOf(row))}</span>`,
        },
      ]}
    />
  `
}

function sparedOf(row) {
  const { bytes_skipped: skipped, bytes_read: read } = row.reading
  return skipped + read ? skipped / (skipped + read) : null
}

function Server({ of: overview }) {
  return html`<${Facts}
    of=${[
      ["State", overview.ready ? html`<${Badge} tone="good">ready</${Badge}>` : html`<${Badge} tone="bad">a listener does not accept</${Badge}>`],
      ["Version", `Headgate ${overview.version}`],
      ["Name", html`<bdi>${overview.node}</bdi>`],
      ["Clients see", overview.serves_as],
      ...Object.entries(overview.ports).map(([name, port]) => [`Port ${name}`, String(port)]),
    ]}
  />`
}
