// Messages as a subscription has them, or as dead letters: lines that open to properties and body.

import { useEffect, useState } from "../vendor/hooks.mjs"
import { ask, named } from "../api.mjs"
import { Badge, Card, Icon, Skeleton, Trouble } from "../components.mjs"
import { exact, moment } from "../format.mjs"
import { html } from "../html.mjs"
import { change, href } from "../router.mjs"
import { Body, Properties, visible } from "./message.mjs"
import { QUEUE } from "./topics.mjs"

export const PAGE = 50
const RULE_BITS = 2 ** 20

/** A page of the copies of a subscription, from the place that the URL names; `reload()` asks for it again. */
export function useCopies(path, query) {
  const [state, setState] = useState({ rows: null, problem: null, next: null })
  const [turn, setTurn] = useState(0)
  const from = query.get("from") ?? "0"
  const rule = query.get("rule") ?? "0"
  useEffect(() => {
    const given = new AbortController()
    // One more is asked for: it is where the next page begins.
    ask(path, { query: { from, rule, limit: PAGE + 1 }, signal: given.signal }).then(
      (rows) => setState({ rows: rows.slice(0, PAGE), next: rows[PAGE] ?? null, problem: null }),
      (problem) => given.signal.aborted || setState({ rows: null, problem, next: null }),
    )
    return () => given.abort()
  }, [path, from, rule, turn])
  return { ...state, isFirst: from === "0" && rule === "0", reload: () => setTurn((number) => number + 1) }
}

export const Pages = ({ of }) =>
  (!of.isFirst || of.next) &&
  html`<div class="table-foot">
    <span>${of.rows.length > 0 && `from offset ${exact(of.rows[0].offset)}`}</span>
    <span class="actions">
      <button type="button" disabled=${of.isFirst} onClick=${() => change({ from: null, rule: null, open: null })}>First</button>
      <button type="button" disabled=${!of.next} onClick=${() => change({ from: of.next.offset, rule: of.next.rule, open: null })}>Next</button>
    </span>
  </div>`

/** What a subscription has and is not settled. */
export function CopyList({ topic, subscription, query, empty }) {
  const copies = useCopies(named`topics/${topic}/subscriptions/${subscription}/messages`, query)
  if (copies.problem) return html`<${Trouble} problem=${copies.problem} retry=${copies.reload} />`
  if (!copies.rows) return html`<${Card}><${Skeleton} /></${Card}>`
  return html`<${Card} isFlush title="Messages that wait, or that a receiver has" actions=${html`<button type="button" onClick=${copies.reload}>Look again</button>`}>
    ${copies.rows.length === 0 && empty}
    <ul class="copy-lines" aria-label="Messages">
      ${copies.rows.map((row) => html`<${CopyLine} key=${idOf(row)} row=${row} query=${query} why=${whyOf(topic, subscription, row.offset)} detail=${html`<${Badge}>${row.state}</${Badge}>`} />`)}
    </ul>
    <${Pages} of=${copies} />
  </${Card}>`
}

export const idOf = (row) => `${row.offset}-${row.rule}`

/** The question why a subscription has a message, or has it no more; a queue is asked about as a whole. */
export const whyOf = (topic, subscription, offset) => href(["why"], { name: topic, offset, for: subscription === QUEUE ? null : subscription })

/** One message in a line, which opens to all of it. `chosen` and `onChoose` give it a tick box. */
export function CopyLine({ row, query, why, detail, chosen, onChoose }) {
  const id = idOf(row)
  const isOpen = query.get("open") === id
  const { properties, application_properties: own } = row.message ?? {}
  const title = properties?.["message-id"] ?? properties?.subject ?? summaryOf(own)
  return html`<li class="copy-line" data-open=${isOpen}>
    <div class="copy-head">
      ${onChoose && html`<input type="checkbox" aria-label=${`Choose the dead letter at offset ${row.offset}`} checked=${chosen} onChange=${(event) => onChoose(event.target.checked)} />`}
      <button type="button" class="quiet message-toggle" aria-expanded=${isOpen} onClick=${() => change({ open: isOpen ? null : id })}><${Icon} name="chevron" />${exact(row.offset)}</button>
      <span class="copy-title"><bdi>${row.message ? visible(String(title)) : "bytes that are no message"}</bdi></span>
      <span class="copy-detail">${detail}</span>
      <span class="message-time">${moment(row.timestamp_ms)}</span>
      ${why && html`<a class="message-why" href=${why}>why?</a>`}
    </div>
    ${isOpen && html`<${OpenedCopy} row=${row} />`}
  </li>`
}

const summaryOf = (own) => Object.entries(own ?? {}).filter(([name]) => !name.startsWith("DeadLetter")).slice(0, 3).map(([name, value]) => `${name}: ${value}`).join(", ") || "–"

function OpenedCopy({ row }) {
  if (!row.message) return html`<div class="opened"><p><bdi>${row.malformed}</bdi></p><${Body} of=${{ kind: "data", text: null, base64: row.encoded, size_bytes: Math.floor((row.encoded.length * 3) / 4), is_truncated: false }} /></div>`
  return html`<div class="opened"><${Body} of=${bodyOf(row.message.body)} /><${Properties} row=${row} /></div>`
}

/** The body of a copy in the form in which messages of streams have it. */
function bodyOf(body = {}) {
  const [kind] = Object.keys(body)
  if (kind === undefined) return { kind: "none", text: "", base64: "", size_bytes: 0, is_truncated: false }
  const value = body[kind]
  if (kind === "data" && value?.hex !== undefined) {
    const bytes = Uint8Array.from(value.hex.match(/../g) ?? [], (one) => parseInt(one, 16))
    return { kind, text: null, base64: encoded(bytes), size_bytes: bytes.length, is_truncated: false }
  }
  const text = typeof value === "string" ? value : JSON.stringify(value)
  const bytes = new TextEncoder().encode(text)
  return { kind, text, base64: encoded(bytes), size_bytes: bytes.length, is_truncated: false }
}

/** In parts: a function takes at most some ten thousand arguments. */
function encoded(bytes) {
  let text = ""
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192))
  return btoa(text)
}

/** Where a dead letter came from: the offset in the topic. Null where it does not say. */
export function originOf(row) {
  const copy = row.message?.message_annotations?.["x-headgate-copy"]
  return copy === undefined || copy === null ? null : Math.floor(Number(copy) / RULE_BITS)
}
