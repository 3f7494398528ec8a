// Jobs of Spark: those that report to this server, one of them with its parts and rules; and those that it started.

import { useMemo } from "../vendor/hooks.mjs"
import { Problem, useAsked, usePolled } from "../api.mjs"
import { Ago, Badge, Card, Chart, Empty, Loaded, Page, Stat, Stats, Table, Trouble } from "../components.mjs"
import { count, counted, duration, rate } from "../format.mjs"
import { html } from "../html.mjs"
import { href } from "../router.mjs"
import { SparkJobs, StartButton } from "./spark_jobs.mjs"

/** A running job that said nothing for so long may have ended without a word. */
const SILENT_MS = 60_000

const STATES = { running: ["good", "running"], finished: ["info", "finished"], failed: ["bad", "failed"] }

export default function Pipelines({ pipeline, query }) {
  const answer = usePolled("pipelines")
  return pipeline === undefined ? html`<${All} answer=${answer} query=${query} />` : html`<${One} name=${pipeline} answer=${answer} />`
}

function State({ of, reportedMs }) {
  const [tone, text] = STATES[of] ?? ["plain", of]
  if (of === "running" && reportedMs !== undefined && Date.now() - reportedMs > SILENT_MS) return html`<${Badge} tone="warn">silent since ${duration(Date.now() - reportedMs)}</${Badge}>`
  return html`<${Badge} tone=${tone}>${text}</${Badge}>`
}

const rowsOf = (pipeline) => pipeline.parts.reduce((sum, part) => sum + part.rows, 0)
const rateOf = (pipeline) => (pipeline.state === "running" && pipeline.parts.some((part) => part.rows_per_s !== null) ? pipeline.parts.reduce((sum, part) => sum + (part.rows_per_s ?? 0), 0) : null)
const errorOf = (pipeline) => pipeline.parts.find((part) => part.error)?.error ?? null

function All({ answer, query }) {
  const offer = useAsked("spark-jobs")
  return html`<${Page} title="Pipelines" lead="Jobs of Spark that report to this server; back-tests and builds that it starts." actions=${html`<${StartButton} offer=${offer} />`}>
    <${Loaded} of=${answer}>
      ${(rows) => html`<${Card} isFlush>
        <${Table}
          caption="pipelines"
          columns=${COLUMNS}
          rows=${rows}
          keyOf=${(row) => row.name}
          empty=${html`<${Empty} title="No job has reported yet">
            <p>Start one with <code>headgate run PIPELINE.toml --report ADDRESS</code>, or call <code>headgate.spark.report_to(spark, ADDRESS)</code> in a session of your own. The address is <code>${location.protocol}//USER:PASSWORD@${location.host}</code>.</p>
          </${Empty}>`}
        />
      </${Card}>`}
    </${Loaded}>
    <${SparkJobs} offer=${offer} query=${query} />
  </${Page}>`
}

const COLUMNS = [
  {
    id: "name",
    title: "Pipeline",
    isWide: true,
    value: (row) => row.name,
    render: (row) => html`<a href=${href(["pipelines", row.name])}><bdi>${row.name}</bdi></a><small class="under"><bdi>${row.user}</bdi></small>${errorOf(row) && html`<small class="under"><bdi>${errorOf(row).split("\n")[0]}</bdi></small>`}`,
  },
  { id: "state", title: "State", value: (row) => row.state, render: (row) => html`<${State} of=${row.state} reportedMs=${row.reported_ms} />` },
  { id: "rows", title: "Rows", isNumber: true, value: rowsOf },
  { id: "rate", title: "Now", isNumber: true, value: rateOf, render: (row) => rate(rateOf(row)) },
  { id: "parts", title: "Parts", isNumber: true, value: (row) => row.parts.length },
  { id: "reported", title: "Last report", isNumber: true, value: (row) => row.reported_ms, render: (row) => html`<${Ago} ms=${row.reported_ms} />` },
]

// one pipeline

function One({ name, answer }) {
  return html`<${Page} title=${name} crumbs=${[["Pipelines", href(["pipelines"])]]}>
    <${Loaded} of=${answer}>
      ${(rows) => {
        const found = rows.find((row) => row.name === name)
        return found ? html`<${Pipeline} of=${found} />` : html`<${Trouble} problem=${new Problem(404, { detail: `No job reported as "${name}" since the server started.` })} />`
      }}
    </${Loaded}>
  </${Page}>`
}

function Pipeline({ of }) {
  const rules = of.parts.flatMap((part) => part.rules.map((rule) => ({ ...rule, part: part.name })))
  const failures = rules.reduce((sum, rule) => sum + (rule.errors ?? 0) + rule.failed_actions, 0)
  const { times, rates } = useMemo(() => ratesOf(of.points), [of.points])
  const isSilent = of.state === "running" && Date.now() - of.reported_ms > SILENT_MS
  return html`
    ${isSilent && html`<p class="stale">It has not reported for ${duration(Date.now() - of.reported_ms)}: it may have been killed, or cannot reach this server.</p>`}
    ${of.parts.filter((part) => part.error).map((part) => html`<${Trouble} key=${part.name} problem=${new Problem(0, { detail: `${part.name}: ${part.error}` })} />`)}
    <${Stats}>
      <${Stat} label="State" value=${html`<${State} of=${of.state} reportedMs=${of.reported_ms} />`} note=${html`reported <${Ago} ms=${of.reported_ms} />`} />
      <${Stat} label="Rows" value=${count(rowsOf(of))} note=${`by ${counted(of.parts.length, "part")}`} />
      <${Stat} label="Now" value=${rate(rateOf(of))} />
      <${Stat} label="Running for" value=${duration(of.reported_ms - of.first_reported_ms)} note="since its first report" />
      <${Stat} label="Rule failures" value=${count(failures)} tone=${failures ? "bad" : undefined} />
    </${Stats}>
    ${times.length > 1 &&
    html`<div class="grid two">
      <${Card} title="Rows" note="since it began"><${Chart} title="Rows" times=${of.points.map((one) => one.timestamp_ms)} series=${[{ label: "rows", show: count, values: of.points.map((one) => one.rows) }]} /></${Card}>
      <${Card} title="Rate" note="between reports"><${Chart} title="Rate" times=${times} series=${[{ label: "rows", show: rate, values: rates, colour: "--series-2" }]} /></${Card}>
    </div>`}
    <${Card} title="Parts" isFlush>
      <${Table} id="parts" caption="parts" columns=${PART_COLUMNS} rows=${of.parts} keyOf=${(row) => `${row.kind} ${row.name}`} />
    </${Card}>
    ${rules.length > 0 &&
    html`<${Card} title="Rules" isFlush>
      <${Table} id="rules" caption="rules" columns=${RULE_COLUMNS} rows=${rules} keyOf=${(row) => `${row.part} ${row.subscription} ${row.rule}`} />
    </${Card}>`}
  `
}

/** Rows per second between two points; a job that began anew counts from 0. */
function ratesOf(points) {
  const later = points.slice(1)
  return {
    times: later.map((one) => one.timestamp_ms),
    rates: later.map((one, at) => (1000 * Math.max(0, one.rows - points[at].rows)) / (one.timestamp_ms - points[at].timestamp_ms)),
  }
}

const PART_COLUMNS = [
  { id: "name", title: "Part", isWide: true, value: (row) => row.name, render: (row) => html`<bdi>${row.name}</bdi><small class="under"><bdi>${row.kind}</bdi></small>` },
  { id: "state", title: "State", value: (row) => row.state, render: (row) => html`<${State} of=${row.state} />` },
  { id: "rows", title: "Rows", isNumber: true, value: (row) => row.rows },
  { id: "rate", title: "Now", isNumber: true, value: (row) => row.rows_per_s, render: (row) => rate(row.rows_per_s) },
  { id: "batches", title: "Batches", isNumber: true, value: (row) => row.batches },
  { id: "batch", title: "Last batch", isNumber: true, value: (row) => row.batch_ms, render: (row) => duration(row.batch_ms) },
  {
    id: "spared",
    title: "Chunks not read",
    isNumber: true,
    value: (row) => row.counters.chunks_skipped,
    render: (row) => (row.counters.chunks_skipped === undefined ? "–" : html`${count(row.counters.chunks_skipped)}<small class="under">of ${count(row.counters.chunks_skipped + (row.counters.chunks_examined ?? 0))}</small>`),
  },
]

const RULE_COLUMNS = [
  { id: "subscription", title: "Subscription", value: (row) => row.subscription },
  { id: "rule", title: "Rule", isWide: true, value: (row) => row.rule, render: (row) => html`<bdi>${row.rule}</bdi>${row.last_failure && html`<small class="under"><bdi>${row.last_failure}</bdi></small>`}` },
  { id: "matched", title: "Matched", isNumber: true, value: (row) => row.matched },
  { id: "copies", title: "Copies", isNumber: true, value: (row) => row.copies },
  { id: "errors", title: "Filter failed", isNumber: true, value: (row) => row.errors, render: (row) => (row.errors ? html`<${Badge} tone="bad">${count(row.errors)}</${Badge}>` : count(row.errors)) },
  { id: "actions", title: "Action failed", isNumber: true, value: (row) => row.failed_actions, render: (row) => (row.failed_actions ? html`<${Badge} tone="bad">${count(row.failed_actions)}</${Badge}>` : count(row.failed_actions)) },
]
