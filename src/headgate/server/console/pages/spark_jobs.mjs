// Back-tests and builds as jobs of Spark: how they are started, how they go, and what they found.

import { useState } from "../vendor/hooks.mjs"
import { ask, named, useAsked, usePolled } from "../api.mjs"
import { Bars, Card, Code, Dialog, Facts, Field, FilterBox, Form, Icon, Loaded, Stat, Stats, Table, toast } from "../components.mjs"
import { bytes, count, counted, duration, exact, moment, percent } from "../format.mjs"
import { html } from "../html.mjs"
import { change, href } from "../router.mjs"
import { Jobs } from "./jobs.mjs"

/** Kinds of jobs: title, and what one does. */
const KINDS = {
  "back-test": ["Back-test", "tries rules on messages that are there; it writes nothing"],
  columns: ["Column files", "of sealed segments, for the declared columns: filters read them in place of messages"],
  lookup: ["Lookup files", "of sealed segments, for the lookup fields: they find the messages with one value"],
  "match-index": ["Match index", "which messages match the registered filters"],
}
const DAY_MINUTES = 24 * 60

const kindOf = (job) => job.kind.slice("spark ".length)

/** The button that starts a job; nothing where this server starts none. */
export const StartButton = ({ offer }) => offer.data?.is_offered && html`<button type="button" class="primary" onClick=${() => change({ start: "1" })}><${Icon} name="play" />Start a job</button>`

/** The jobs of Spark that this server started, or how to let it start some; with the dialogs that the address names. */
export function SparkJobs({ offer, query }) {
  if (offer.data && !offer.data.is_offered) return html`<${NotOffered} />`
  return html`
    <${Jobs} title="Back-tests and builds" isShown=${(job) => job.kind.startsWith("spark ")} minutes=${DAY_MINUTES} detail=${(job) => html`<${Progress} of=${job} />`} />
    ${query.has("start") && html`<${Start} query=${query} onClose=${() => change({ start: null, kind: null, stream: null })} />`}
    ${query.has("report") && html`<${Report} key=${query.get("report")} job=${query.get("report")} onClose=${() => change({ report: null })} />`}
  `
}

function NotOffered() {
  return html`<${Card} title="Back-tests and builds" note="this server starts none">
    <p>To let users start them here, the operator installs <code>headgate[spark]</code>, adds this to the server's configuration, and starts the server again. <code>local[2]</code> means two processes of low priority beside the server; a cluster has another master.</p>
    <${Code}>${'[spark]\nmaster = "local[2]"'}</${Code}>
    <p class="note">On the command line they need no server: <code>headgate rule test</code>, <code>headgate columns build</code>, <code>headgate lookup build</code>, <code>headgate index build</code>.</p>
  </${Card}>`
}

function Progress({ of }) {
  const [title] = KINDS[kindOf(of)] ?? [of.kind]
  const took = duration((of.ended_ms ?? Math.max(Date.now(), of.started_ms)) - of.started_ms)
  return html`<div class="job-head">
    <span>${title}</span><span class="note">${of.state === "running" ? `for ${took}` : `took ${took}`}</span>
    ${of.state === "done" && html`<button type="button" onClick=${() => change({ report: of.id })}>Report<span class="sr-only"> of ${title} of <bdi>${of.subject}</bdi></span></button>`}
  </div>`
}

// a new one

function Start({ query, onClose }) {
  const streams = usePolled("streams", { everyMs: 60_000 })
  const [given, setGiven] = useState({ kind: Object.hasOwn(KINDS, query.get("kind")) ? query.get("kind") : "back-test", stream: query.get("stream") ?? "", isOwn: false, sql: "", dialect: "servicebus", from: "first", until: "" })
  const set = (changes) => setGiven((before) => ({ ...before, ...changes }))
  const isTest = given.kind === "back-test"
  const [title, meaning] = KINDS[given.kind]
  const start = async () => {
    const rule = { name: "tried", sql: given.sql, ...(given.dialect === "servicebus" ? {} : { dialect: given.dialect }) }
    const range = { from: given.from.trim() || "first", until: given.until.trim() || null }
    await ask("spark-jobs", { method: "POST", body: { kind: given.kind, stream: given.stream, ...(isTest ? { ...range, rules: given.isOwn ? [rule] : [] } : {}) } })
    toast(`${title} of ${given.stream}: started.`)
  }
  return html`<${Dialog} title="Start a job" onClose=${onClose} isWide>
    <${Form} verb="Start" onSubmit=${start} onDone=${onClose} isReady=${given.stream.trim() !== "" && !(isTest && given.isOwn && !given.sql.trim())}>
      <div class="row">
        <${Field} label="Kind">
          ${(props) => html`<select ...${props} value=${given.kind} onChange=${(event) => set({ kind: event.target.value })}>${Object.entries(KINDS).map(([id, [title]]) => html`<option value=${id} selected=${id === given.kind}>${title}</option>`)}</select>`}
        </${Field}>
        <${Field} label="Stream or topic">${(props) => html`<input ...${props} required list="spark-streams" value=${given.stream} autocomplete="off" spellcheck=${false} onInput=${(event) => set({ stream: event.target.value })} />`}</${Field}>
        <datalist id="spark-streams">${(streams.data ?? []).map((row) => html`<option value=${row.name} />`)}</datalist>
      </div>
      <p class="note">${title}: ${meaning}.</p>
      ${isTest &&
      html`
        <fieldset class="choice">
          <legend>Tries</legend>
          <label class="check"><input type="radio" name="rules" checked=${!given.isOwn} onChange=${() => set({ isOwn: false })} /><span>The rules of the topic, as they are now</span></label>
          <label class="check"><input type="radio" name="rules" checked=${given.isOwn} onChange=${() => set({ isOwn: true })} /><span>A filter of yours</span></label>
        </fieldset>
        ${given.isOwn && html`<${FilterBox} text=${given.sql} language=${given.dialect} onText=${(sql) => set({ sql })} onLanguage=${(dialect) => set({ dialect })} />`}
        <div class="row">
          <${Field} label="From" hint="first, an offset, 7D (before now) or a time.">${(props) => html`<input ...${props} value=${given.from} autocomplete="off" spellcheck=${false} onInput=${(event) => set({ from: event.target.value })} />`}</${Field}>
          <${Field} label="Until" hint="Empty: the end there is now.">${(props) => html`<input ...${props} value=${given.until} autocomplete="off" spellcheck=${false} onInput=${(event) => set({ until: event.target.value })} />`}</${Field}>
        </div>
      `}
    </${Form}>
  </${Dialog}>`
}

// what one found

function Report({ job, onClose }) {
  const answer = useAsked(named`spark-jobs/${job}/report`)
  return html`<${Dialog} title="Report" onClose=${onClose} isWide>
    <div class="dialog-body page">
      <${Loaded} of=${answer}>
        ${(objects) => html`
          ${objects.length === 0 && html`<p>It wrote no report: there was nothing to do, or it has not ended.</p>`}
          ${objects.map((one) => (one.rules ? html`<${BackTest} key=${one.stream} of=${one} />` : html`<${Build} key=${one.stream} of=${one} />`))}
        `}
      </${Loaded}>
    </div>
  </${Dialog}>`
}

const RULES = [
  { id: "subscription", title: "Subscription", value: (row) => row.subscription },
  { id: "rule", title: "Rule", isWide: true, value: (row) => row.rule },
  { id: "matched", title: "Matched", isNumber: true, value: (row) => row.matched, render: (row) => html`${count(row.matched)}<small class="under">${percent(row.share)}</small>` },
  { id: "errors", title: "Filter failed", isNumber: true, value: (row) => row.errors },
  { id: "unknown", title: "Unknown", isNumber: true, value: (row) => row.unknown },
  { id: "actions", title: "Action failed", isNumber: true, value: (row) => row.failed_actions },
]

function BackTest({ of }) {
  const samples = of.rules.flatMap((rule) => [
    ...rule.samples.map((sample) => ({ ...sample, title: `${rule.subscription}/${rule.rule}` })),
    ...rule.error_samples.map((sample) => ({ ...sample, title: `${rule.subscription}/${rule.rule} fails` })),
  ])
  const rows = of.rules.map((rule) => ({ ...rule, share: of.messages ? rule.matched / of.messages : 0 }))
  return html`
    <${Stats}>
      <${Stat} label="Messages" value=${count(of.messages)} note=${`offsets ${exact(of.start)} to ${exact(Math.max(of.start, of.stop - 1))}`} />
      <${Stat} label="No copy" value=${count(of.by_copies.none)} />
      <${Stat} label="One copy" value=${count(of.by_copies.one)} />
      <${Stat} label="Several copies" value=${count(of.by_copies.several)} />
      ${of.unreadable_bodies > 0 && html`<${Stat} label="Bodies not read" value=${count(of.unreadable_bodies)} note="not JSON, or not of the schema" />`}
    </${Stats}>
    <${Card} title="Rules" note=${html`of <bdi>${of.stream}</bdi>`} isFlush><${Table} id="tried" caption="tried rules" columns=${RULES} rows=${rows} keyOf=${(row) => `${row.subscription}/${row.rule}`} /></${Card}>
    ${of.rule_overlaps.length > 0 &&
    html`<${Card} title="Taken by two rules"><${Bars} title="Messages in common" of=${of.rule_overlaps.slice(0, 8).map((one) => ({ label: html`<bdi>${one.first} and ${one.second}</bdi>`, value: one.messages }))} /></${Card}>`}
    ${samples.length > 0 &&
    html`<${Card} title="For example">
      <ul class="samples">
        ${samples.map((one) => html`<li><b><bdi>${one.title}</bdi></b> <a href=${href(["messages", of.stream], { from: one.offset, open: one.offset, limit: 20 })}>${exact(one.offset)}</a> <span class="note">${moment(one.timestamp_ms)}</span> <bdi>${one.note}</bdi> <code><bdi>${JSON.stringify(one.message?.application_properties ?? one.message)}</bdi></code></li>`)}
      </ul>
    </${Card}>`}
  `
}

const WORDS = { segments: "Sealed segments", built: "Files made", messages: "Messages read", inexact: "Values that files do not hold exactly", segments_written: "Files made", chunks_decided: "Chunks read", messages_decided: "Messages decided", chunks_corrupt: "Damaged chunks" }

function Build({ of: { stream, ...found } }) {
  const facts = Object.entries(found).map(([name, value]) => (/^bytes/.test(name) ? ["Size", bytes(value)] : [WORDS[name] ?? name.replaceAll("_", " "), exact(value)]))
  return html`<${Card} title=${stream} note=${counted(found.segments, "sealed segment")}><${Facts} of=${facts} /></${Card}>`
}
