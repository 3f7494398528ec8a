// Why did this consumer get this message, or not? One question, and the answer step by step down to the clause.

import { useEffect, useState } from "../vendor/hooks.mjs"
import { ask, usePolled } from "../api.mjs"
import { Ago, Badge, Card, Empty, Facts, FilterBox, Page, Skeleton, Time, Trouble } from "../components.mjs"
import { bytes, counted, exact } from "../format.mjs"
import { html } from "../html.mjs"
import { change, href } from "../router.mjs"

const LEADS = { id: "Message id", offset: "Offset", where: "Filter that selects it" }

export default function Why({ query }) {
  const question = questionOf(query)
  const streams = usePolled("streams", { everyMs: 60_000 })
  return html`<${Page} title="Why not?" lead="Why a consumer got a message, or did not: down to the clause that decided.">
    <${Card}><${Asker} query=${query} names=${streams.data ?? []} /></${Card}>
    ${question
      ? html`<${Answered} key=${JSON.stringify(question)} question=${question} />`
      : html`<${Card}><${Empty} title="Ask about one message">
          <p>Give the stream, topic or queue, and the message by its id, its offset, or a filter that selects it alone.</p>
        </${Empty}></${Card}>`}
  </${Page}>`
}

/** The question of an address, null if it is not whole. */
function questionOf(query) {
  const by = Object.keys(LEADS).find((one) => query.get(one))
  if (!query.get("name") || !by) return null
  const value = query.get(by)
  return {
    name: query.get("name"),
    [by]: by === "offset" ? Number(value) : value,
    ...(by === "where" ? { language: query.get("language") ?? "amqp" } : {}),
    ...(query.get("for") ? { for: query.get("for") } : {}),
    ...(query.get("filter") ? { filter: query.get("filter"), filter_language: query.get("filter-language") ?? "rabbitmq" } : {}),
    ...(query.has("filter-value") ? { filter_values: query.getAll("filter-value") } : {}),
  }
}

function Asker({ query, names }) {
  const by = Object.keys(LEADS).find((one) => query.get(one)) ?? "id"
  const [given, setGiven] = useState({
    name: query.get("name") ?? "",
    by,
    value: query.get(by) ?? "",
    language: query.get("language") ?? "amqp",
    for: query.get("for") ?? "",
  })
  const set = (changes) => setGiven((before) => ({ ...before, ...changes }))
  const submit = (event) => {
    event?.preventDefault()
    const cleared = { id: null, offset: null, where: null, language: null, filter: null, "filter-language": null, "filter-value": null }
    change({ ...cleared, name: given.name, [given.by]: given.value.trim(), language: given.by === "where" ? given.language : null, for: given.for })
  }
  return html`<form class="asker" onSubmit=${submit} method="dialog">
    <div class="row">
      <label class="field grow">
        <span>Stream, topic or queue</span>
        <input list="why-names" required value=${given.name} autocomplete="off" spellcheck=${false} onInput=${(event) => set({ name: event.target.value })} />
      </label>
      <datalist id="why-names">${names.map((row) => html`<option value=${row.name} />`)}</datalist>
      <label class="field">
        <span>Message by</span>
        <select value=${given.by} onChange=${(event) => set({ by: event.target.value })}>
          ${Object.entries(LEADS).map(([name, title]) => html`<option value=${name} selected=${name === given.by}>${title.toLowerCase()}</option>`)}
        </select>
      </label>
      ${given.by !== "where" &&
      html`<label class="field grow">
        <span>${LEADS[given.by]}</span>
        <input required inputmode=${given.by === "offset" ? "numeric" : undefined} pattern=${given.by === "offset" ? "[0-9]+" : undefined} value=${given.value} autocomplete="off" spellcheck=${false} onInput=${(event) => set({ value: event.target.value })} />
      </label>`}
      <label class="field grow">
        <span>For whom (all, if empty)</span>
        <input value=${given.for} autocomplete="off" spellcheck=${false} onInput=${(event) => set({ for: event.target.value })} />
      </label>
      <button type="submit" class="primary">Ask</button>
    </div>
    ${given.by === "where" &&
    html`<${FilterBox} label="Where" text=${given.value} language=${given.language} onText=${(value) => set({ value })} onLanguage=${(language) => set({ language })} onSubmit=${submit} />`}
  </form>`
}

/** The answer to a question; also in the drawer of a message. */
export function Answered({ question }) {
  const [state, setState] = useState({ answer: null, problem: null })
  const [turn, setTurn] = useState(0)
  useEffect(() => {
    const given = new AbortController()
    setState({ answer: null, problem: null })
    ask("why", { method: "POST", body: question, signal: given.signal }).then(
      (answer) => setState({ answer, problem: null }),
      (problem) => given.signal.aborted || setState({ answer: null, problem }),
    )
    return () => given.abort()
  }, [turn])
  if (state.problem) return html`<${Trouble} problem=${state.problem} retry=${() => setTurn(turn + 1)} />`
  if (!state.answer) return html`<${Card}><p class="note" role="status">The message is looked for …</p><${Skeleton} lines=${5} /></${Card}>`
  return html`<${Answer} of=${state.answer} />`
}

function Answer({ of: answer }) {
  const { message, search } = answer
  return html`
    <div role="status" class="sr-only">Answered.</div>
    ${message
      ? html`<${Card}
          title="The message"
          note=${html`asked <${Ago} ms=${answer.asked_ms} />${search.messages_searched > 0 && `; ${exact(search.messages_examined)} of ${exact(search.messages_searched)} messages were read to find it`}${search.using.length > 0 && `, using ${search.using.join(", ")}`}`}
          actions=${html`<a class="button" href=${href(["messages", answer.stream], { from: message.offset, limit: 20, open: message.offset })}>Look at it</a>`}
        >
          <${Facts}
            of=${[
              ["Stream", html`<a href=${href(["streams", answer.stream])}><bdi>${answer.stream}</bdi></a>`],
              ["Offset", exact(message.offset)],
              ["Id", html`<bdi>${message.id ?? "–"}</bdi>`],
              ["Stored", html`<${Time} ms=${message.timestamp_ms} date="always" />`],
              ["Size", bytes(message.size_bytes)],
              ["Filter value", html`<bdi>${message.filter_value ?? "none"}</bdi>`],
              ["Chunk", `${exact(message.chunk)}, ${counted(message.chunk_messages, "message")}`],
              ["Segment", `${message.segment}, ${message.place === "remote" ? "in object storage" : "on this machine"}`],
            ]}
          />
        </${Card}>`
      : html`<${Card} title="There is no such message">
          <p><bdi>${answer.missing ?? "It was not found."}</bdi></p>
          <p class="note">${exact(search.messages_examined)} of ${exact(search.messages_searched)} messages were read${!search.is_complete && "; the time was over before all were"}.</p>
        </${Card}>`}
    ${answer.consumers.length === 1
      ? html`<${Consumer} of=${answer.consumers[0]} answer=${answer} isWhole />`
      : answer.consumers.map((one) => html`<${Consumer} key=${`${one.kind} ${one.name}`} of=${one} answer=${answer} />`)}
    ${message && answer.consumers.length === 0 && html`<${Card}><${Empty} title="Nobody reads this stream"><p>No subscription, group or stored offset is known.</p></${Empty}></${Card}>`}
    ${answer.left_out > 0 && html`<p class="note">${answer.left_out} more are left out: ask for one by its name.</p>`}
  `
}

const FATES = {
  "filtered-out": ["bad", "filtered out"],
  "dead-lettered": ["bad", "dead letter"],
  deleted: ["bad", "deleted by retention"],
  "no-message": ["bad", "no message"],
  "not-stored": ["bad", "not stored"],
  expired: ["warn", "expired"],
  purged: ["warn", "purged"],
  before: ["warn", "not in force yet"],
  delayed: ["info", "delayed"],
  deferred: ["info", "deferred"],
  scheduled: ["info", "scheduled"],
  available: ["info", "waits for a receiver"],
  ahead: ["info", "not read yet"],
  moving: ["info", "on its way"],
  claimed: ["info", "a receiver has it"],
  "no-dead-letter": ["info", "no dead letter"],
  completed: ["good", "completed"],
  settled: ["good", "settled"],
  forwarded: ["good", "forwarded"],
  passed: ["good", "read past it"],
  matches: ["good", "matches"],
}

export function Fate({ of }) {
  const [tone, text] = FATES[of] ?? ["plain", of]
  return html`<${Badge} tone=${tone}>${text}</${Badge}>`
}

const KINDS = { "group": "consumer group", "dead-letters": "dead letters" }

/** One consumer: a line where there are many, which opens to the steps and clauses. */
function Consumer({ of, answer, isWhole = false }) {
  const [isOpen, setOpen] = useState(isWhole)
  const head = html`<span class="why-name"><bdi>${of.name}</bdi></span> <span class="note">${KINDS[of.kind] ?? of.kind.replaceAll("-", " ")}</span> <${Fate} of=${of.fate} />`
  if (isWhole) return html`<${Card} title=${head}><p class="why-summary"><bdi>${of.summary}</bdi></p><${Details} of=${of} answer=${answer} /></${Card}>`
  return html`<details class="card why-one" open=${isOpen} onToggle=${(event) => setOpen(event.target.open)}>
    <summary><h2>${head}</h2><p class="why-summary"><bdi>${of.summary}</bdi></p></summary>
    ${isOpen && html`<${Details} of=${of} answer=${answer} />`}
  </details>`
}

const STATES = { yes: ["✓", "yes"], no: ["✕", "no"], unknown: ["?", "not known"] }

function Details({ of }) {
  return html`
    <ol class="steps">
      ${of.steps.map((one) => {
        const [sign, word] = STATES[one.state] ?? ["?", one.state]
        return html`<li data-state=${one.state}>
          <span class="step-sign" aria-hidden="true">${sign}</span>
          <div><h3>${one.step[0].toUpperCase() + one.step.slice(1)}<span class="sr-only">: ${word}</span></h3><p><bdi>${one.text}</bdi></p></div>
        </li>`
      })}
    </ol>
    ${of.stage && html`<p class="note">Decided by: <b>${of.stage.replaceAll("-", " ")}</b>.</p>`}
    ${of.decisions.map((one) => html`<${Decision} of=${one} />`)}
    ${of.copies.map((one) => html`<${CopyOf} of=${one} />`)}
  `
}

function Decision({ of }) {
  return html`<section class="decision">
    <header>
      <h3>${of.kind === "rule" ? "Rule" : "Filter"} <bdi>${of.name}</bdi></h3>
      <${Verdict} of=${of.verdict} />
      <span class="note">${of.language}${of.from_offset !== null && `, in force since offset ${exact(of.from_offset)}`}${of.since_ms !== null && html`, <${Time} ms=${of.since_ms} />`}</span>
    </header>
    ${of.clauses ? html`<ul class="clauses"><${Clause} of=${of.clauses} /></ul>` : html`<p><code><bdi>${of.text}</bdi></code></p>`}
    ${of.clauses === null && of.reasons.map((one) => html`<p><bdi>${one}</bdi></p>`)}
    ${of.warnings.map((one) => html`<p class="stale"><bdi>${one}</bdi></p>`)}
    ${of.action && html`<p>Action: <code><bdi>${of.action}</bdi></code></p>`}
    ${of.failure && html`<p class="stale">The action failed: <bdi>${of.failure}</bdi></p>`}
    ${of.changes?.length > 0 &&
    html`<ul class="changes">${of.changes.map((one) => html`<li><code><bdi>${one.field}</bdi></code>: <bdi>${shown(one.before)}</bdi> → <b><bdi>${shown(one.after)}</bdi></b></li>`)}</ul>`}
  </section>`
}

const shown = (value) => (value === null || value === undefined ? "absent" : typeof value === "string" ? value : JSON.stringify(value))

export function Verdict({ of }) {
  const tone = { true: "good", false: "bad", unknown: "warn", error: "bad" }[of]
  return html`<${Badge} tone=${tone}>${{ true: "✓ true", false: "✕ false", unknown: "? unknown", error: "! error" }[of] ?? of}</${Badge}>`
}

/** A clause with its verdict, the value that it saw, and the clauses that it is made of. */
function Clause({ of }) {
  return html`<li>
    <div class="clause" data-verdict=${of.verdict}>
      <${Verdict} of=${of.verdict} />
      <code><bdi>${of.text}</bdi></code>
      ${of.note && html`<span class="clause-note"><bdi>${of.note}</bdi></span>`}
    </div>
    ${of.operands.length > 0 && html`<ul>${of.operands.map((one) => html`<${Clause} of=${one} />`)}</ul>`}
  </li>`
}

/** The number of the rule of a dead letter that no rule made, because rules failed. */
const FAILED_RULES = 0xfffff

function CopyOf({ of }) {
  const facts = [
    ["Attempts", exact(of.attempts)],
    ["Until", of.until_ms && html`<${Time} ms=${of.until_ms} />`],
    ["Session", of.session && html`<bdi>${of.session}</bdi>`],
    ["Reason", of.reason && html`<bdi>${of.reason}</bdi>`],
    ["Description", of.description && html`<bdi>${of.description}</bdi>`],
    ["Went to", of.target && html`<bdi>${of.target}</bdi>${of.target_offset !== null && `, offset ${exact(of.target_offset)}`}`],
  ].filter(([, value]) => value)
  return html`<section class="decision">
    <header><h3>${of.rule === FAILED_RULES ? "Dead letter of the rules that failed" : "Copy"}${of.rule_name && html` by rule <bdi>${of.rule_name}</bdi>`}</h3><${Fate} of=${of.fate} /></header>
    <${Facts} of=${facts} />
    ${of.events.length > 0 &&
    html`<ol class="events">${of.events.map((one) => html`<li><${Time} ms=${one.at_ms} /> <b>${one.kind.replaceAll("-", " ")}</b> <span class="note"><bdi>${one.text}</bdi></span></li>`)}</ol>`}
  </section>`
}
