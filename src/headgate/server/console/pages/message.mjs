// One message, opened: its body as text, JSON or bytes, and its properties with their types. All of it is text from clients.

import { useMemo, useState } from "../vendor/hooks.mjs"
import { streamAddress } from "../api.mjs"
import { Copy } from "../components.mjs"
import { bytes, exact, moment } from "../format.mjs"
import { html } from "../html.mjs"
import { href } from "../router.mjs"
import { asCommand, asPython, clauseOf } from "./search.mjs"

const SECTIONS = {
  header: "Header",
  delivery_annotations: "Delivery annotations",
  message_annotations: "Message annotations",
  properties: "Properties",
  application_properties: "Application properties",
  footer: "Footer",
}

/** `onFilter(clause)` is asked to filter by a property, where given. */
export function Opened({ row, stream, onFilter }) {
  const whole = { from: String(row.offset), filter: "", language: "amqp", filterValues: [], isFollowed: false }
  const clause = useMemo(() => clauseOfMessage(row), [row])
  const server = streamAddress()
  return html`<div class="opened">
    <${Body} of=${row.body} />
    <${Properties} row=${row} onFilter=${onFilter} />
    <div class="copies">
      <span class="note">Copy this message as</span>
      ${clause && html`<${Copy} text=${clause} label="Filter" />`}
      ${server &&
      html`<${Copy} text=${() => `${asCommand(server, stream, whole)} --count 1 --json`} label="Command line" />
        <${Copy} text=${() => asPython(server, stream, whole)} label="Python" />`}
      <${Copy} text=${() => JSON.stringify(row.message, null, 2)} label="JSON" />
      <a class="note" href=${href(["messages", stream], { from: row.offset, open: row.offset })}>Link to it</a>
    </div>
  </div>`
}

function clauseOfMessage({ message, typed }) {
  const clause = (section, name, value) => clauseOf(section, name, value, typeOf(typed?.[section]?.[name]))
  const id = message.properties?.["message-id"]
  const clauses = id !== undefined ? [clause("properties", "message-id", id)] : Object.entries(message.application_properties ?? {}).map(([name, value]) => clause("application_properties", name, value))
  return clauses.filter(Boolean).join(" AND ")
}

// properties

export function Properties({ row, onFilter }) {
  const sections = Object.entries(SECTIONS).filter(([name]) => Object.keys(row.message[name] ?? {}).length)
  if (!sections.length) return html`<p class="note">It has no properties.</p>`
  return html`<div class="sections">
    ${sections.map(
      ([section, title]) => html`<section>
        <h3>${title}</h3>
        <dl class="properties">
          ${Object.entries(row.message[section]).map(([name, value]) => {
            const type = typeOf(row.typed?.[section]?.[name])
            const clause = clauseOf(section, name, value, type)
            return html`<div>
              <dt><bdi>${name}</bdi></dt>
              <dd>
                <${Long} text=${typeof value === "string" ? value : JSON.stringify(value)} />
                ${type && html`<span class="type">${type === "timestamp" ? moment(value, { date: "always" }) : type}</span>`}
                ${clause && onFilter && html`<button type="button" class="quiet small" onClick=${() => onFilter(clause)}>Filter<span class="sr-only"> by ${name}</span></button>`}
              </dd>
            </div>`
          })}
        </dl>
      </section>`,
    )}
  </div>`
}

const typeOf = (typed) => typed?.type ?? typed?.t

const SHOWN = 2000

/** A text that may be very long: its beginning, and the rest on request. */
function Long({ text }) {
  const [isWhole, setWhole] = useState(false)
  if (text.length <= SHOWN || isWhole) return html`<bdi class="value">${visible(text)}</bdi>`
  return html`<bdi class="value">${visible(text.slice(0, SHOWN))}…</bdi> <button type="button" class="quiet small" onClick=${() => setWhole(true)}>All ${exact(text.length)} characters</button>`
}

/** Control characters by their pictures, so that a NUL is seen; line ends and tabs stay. */
export const visible = (text) =>
  text
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, (sign) => String.fromCharCode(0x2400 + sign.charCodeAt(0)))
    // Marks of direction are shown, not obeyed.
    .replace(/[\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (sign) => `⟨U+${sign.charCodeAt(0).toString(16).toUpperCase()}⟩`)

// the body

export function Body({ of: body }) {
  const [bytesOf, text] = useMemo(() => [body.base64 ? decoded(body.base64) : new Uint8Array(), body.text], [body])
  const json = useMemo(() => parsed(text), [text])
  const ways = [json !== undefined && "JSON", text !== null && "Text", "Hex"].filter(Boolean)
  const [way, setWay] = useState(ways[0])
  return html`<section class="body">
    <header>
      <h3>Body</h3>
      <span class="note">${bytes(body.size_bytes)}${body.kind !== "data" && `, ${body.kind}`}${body.is_truncated && ", only its beginning is here"}</span>
      <span class="ways" role="group" aria-label="Show the body as">${ways.map((one) => html`<button type="button" class="small" aria-pressed=${one === way} onClick=${() => setWay(one)}>${one}</button>`)}</span>
      <${Copy} text=${text ?? body.base64 ?? ""} label=${text === null ? "Copy as base64" : "Copy"} />
    </header>
    ${body.size_bytes === 0
      ? html`<p class="note">It is empty.</p>`
      : way === "JSON"
        ? html`<div class="json" tabindex="0" role="region" aria-label="Body as JSON"><${Tree} value=${json} depth=${0} /></div>`
        : way === "Text"
          ? html`<pre class="text" tabindex="0" aria-label="Body as text"><${Long} text=${text} /></pre>`
          : html`<${Hex} of=${bytesOf} />`}
  </section>`
}

function decoded(base64) {
  try {
    return Uint8Array.from(atob(base64), (sign) => sign.charCodeAt(0))
  } catch {
    return new Uint8Array()
  }
}

/** Objects and lists only: a number or a word is read better as it was written. Undefined for what is not JSON. */
function parsed(text) {
  if (text === null || text === undefined || !/^\s*[[{]/.test(text)) return undefined
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

const CHILDREN = 100

function Tree({ name, value, depth }) {
  const [shown, setShown] = useState(CHILDREN)
  const [isOpen, setOpen] = useState(depth < 3)
  const label = name !== undefined && html`<span class="json-name"><bdi>${name}</bdi>: </span>`
  if (value === null || typeof value !== "object") {
    const kind = value === null ? "null" : typeof value
    return html`<div class="json-line">${label}<span class="json-value" data-kind=${kind}>${kind === "string" ? html`"<${Long} text=${value} />"` : String(value)}</span></div>`
  }
  const entries = Array.isArray(value) ? value.map((one, at) => [at, one]) : Object.entries(value)
  const size = Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`
  if (!entries.length) return html`<div class="json-line">${label}<span class="json-value">${Array.isArray(value) ? "[ ]" : "{ }"}</span></div>`
  return html`<details open=${isOpen} onToggle=${(event) => setOpen(event.target.open)}>
    <summary>${label}<span class="note">${size}</span></summary>
    ${isOpen &&
    html`<div class="json-children">
      ${entries.slice(0, shown).map(([key, one]) => html`<${Tree} key=${key} name=${key} value=${one} depth=${depth + 1} />`)}
      ${entries.length > shown && html`<button type="button" class="quiet small" onClick=${() => setShown(shown + 10 * CHILDREN)}>${exact(entries.length - shown)} more</button>`}
    </div>`}
  </details>`
}

const LINE = 16
const LINES = 64

function Hex({ of }) {
  const [lines, setLines] = useState(LINES)
  const all = Math.ceil(of.length / LINE)
  const text = useMemo(() => Array.from({ length: Math.min(lines, all) }, (_, at) => hexLine(of, at * LINE)).join("\n"), [of, lines])
  return html`<pre class="hex" tabindex="0" aria-label="Body in hexadecimal">${text}</pre>
    ${all > lines && html`<button type="button" class="quiet small" onClick=${() => setLines(lines * 8)}>${bytes(of.length - lines * LINE)} more</button>`}`
}

function hexLine(of, from) {
  const part = [...of.subarray(from, from + LINE)]
  const numbers = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(3 * LINE - 1)
  const letters = part.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("")
  return `${from.toString(16).padStart(8, "0")}  ${numbers}  ${letters}`
}
