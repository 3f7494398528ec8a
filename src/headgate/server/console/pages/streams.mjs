// The streams of the server; a new one.

import { useMemo, useState } from "../vendor/hooks.mjs"
import { ask, named, usePolled } from "../api.mjs"
import { Badge, Card, Dialog, Empty, Field, Form, Icon, Loaded, Page, Table, toast } from "../components.mjs"
import { bytes, count, percent } from "../format.mjs"
import { html } from "../html.mjs"
import { change, go, href } from "../router.mjs"

export default function Streams({ query }) {
  const streams = usePolled("streams")
  const create = html`<button type="button" class="primary" onClick=${() => change({ new: "1" })}><${Icon} name="plus" />Create a stream</button>`
  return html`<${Page} title="Streams" actions=${create}>
    <${Loaded} of=${streams}>
      ${(rows) => html`<${Card} isFlush>
        <${Table}
          caption="streams"
          columns=${COLUMNS}
          rows=${rows}
          keyOf=${(row) => row.name}
          empty=${html`<${Empty} title="No streams yet"><p>A client may declare one, too.</p>${create}</${Empty}>`}
        />
      </${Card}>`}
    </${Loaded}>
    ${query.has("new") && html`<${Create} onClose=${() => change({ new: null })} />`}
  </${Page}>`
}

const sparedOf = ({ reading }) => (reading && reading.bytes_skipped + reading.bytes_read ? reading.bytes_skipped / (reading.bytes_skipped + reading.bytes_read) : null)

const COLUMNS = [
  {
    id: "name",
    title: "Stream",
    value: (row) => row.name,
    render: (row) => html`<a href=${href(["streams", row.name])}><bdi>${row.name}</bdi></a>
      ${row.error && html` <${Badge} tone="bad">damaged</${Badge}><small class="under"><bdi>${row.error}</bdi></small>`}
      ${row.remote_error && html` <${Badge} tone="warn">object storage fails</${Badge}>`}`,
  },
  { id: "messages", title: "Messages", isNumber: true, value: (row) => row.messages },
  { id: "size", title: "Size", isNumber: true, value: (row) => row.size_bytes, render: (row) => bytes(row.size_bytes) },
  { id: "publishers", title: "Publishers", isNumber: true, value: (row) => row.publishers },
  { id: "consumers", title: "Consumers", isNumber: true, value: (row) => row.consumers },
  {
    id: "spared",
    title: "Not read",
    isNumber: true,
    value: sparedOf,
    render: (row) => html`<span title="Share of the bytes that consumers did not have to read">${percent(sparedOf(row))}</span>`,
  },
  { id: "retention", title: "Keeps", value: (row) => keeps(row.arguments ?? {}) },
  {
    id: "look",
    title: "",
    name: "Messages",
    value: () => "",
    render: (row) => !row.error && html`<a href=${href(["messages", row.name])}>Messages<span class="sr-only"> of <bdi>${row.name}</bdi></span></a>`,
  },
]

/** The limits of a stream in words. */
export function keeps(given) {
  const parts = []
  if (given["max-age"]) parts.push(ageOf(given["max-age"]))
  if (given["max-length-bytes"]) parts.push(`at most ${bytes(Number(given["max-length-bytes"]))}`)
  return parts.join(", ") || "everything"
}

const UNITS = { Y: "year", M: "month", D: "day", h: "hour", m: "minute", s: "second" }

/** "7D" as "7 days". */
function ageOf(text) {
  const [, number, unit] = /^(\d+)([YMDhms])$/.exec(text) ?? []
  return unit ? `${number}\u00a0${UNITS[unit]}${number === "1" ? "" : "s"}` : text
}

/** Arguments of a stream from the fields of a form; null where a field is empty. */
export function argumentsOf(form) {
  const given = new FormData(form)
  const size = sizeOf(given.get("size"))
  return { "max-age": given.get("age").trim() || null, "max-length-bytes": size }
}

function sizeOf(text) {
  const found = /^\s*([0-9.]+)\s*(k|M|G|T)?B?\s*$/.exec(text)
  if (!text.trim()) return null
  if (!found) throw new Error(`A size is a number with kB, MB, GB or TB, found "${text.trim()}".`)
  return Math.round(Number(found[1]) * { k: 1e3, M: 1e6, G: 1e9, T: 1e12 }[found[2]] || Number(found[1]))
}

export function LimitFields({ of = {} }) {
  const size = of["max-length-bytes"]
  return html`
    <${Field} label="Keep for at most" hint="A number with Y, M, D, h, m or s, such as 7D. Empty: no limit.">
      ${(props) => html`<input ...${props} name="age" defaultValue=${of["max-age"] ?? ""} autocomplete="off" spellcheck=${false} pattern="[0-9]+[YMDhms]" />`}
    </${Field}>
    <${Field} label="Keep at most" hint="Such as 20 GB. Empty: no limit.">
      ${(props) => html`<input ...${props} name="size" defaultValue=${size ? bytes(Number(size)).replace("\u00a0", " ") : ""} autocomplete="off" spellcheck=${false} />`}
    </${Field}>
  `
}

function Create({ onClose }) {
  const [name, setName] = useState("")
  const form = useMemo(() => ({ element: null }), [])
  const create = async () => {
    const limits = argumentsOf(form.element.closest("form"))
    const filterSize = new FormData(form.element.closest("form")).get("filter")
    const given = { ...limits, "stream-filter-size-bytes": filterSize ? Number(filterSize) : null }
    const kept = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== null))
    await ask(named`streams/${name}`, { method: "PUT", query: { only: "new" }, body: { arguments: kept } })
    toast(`Stream ${name} is created.`)
    go(href(["streams", name]))
  }
  return html`<${Dialog} title="Create a stream" onClose=${onClose}>
    <${Form} verb="Create" onSubmit=${create} isReady=${name.trim() !== ""}>
      <div class="fields" ref=${(element) => (form.element = element)}>
        <${Field} label="Name">
          ${(props) => html`<input ...${props} required value=${name} autocomplete="off" spellcheck=${false} onInput=${(event) => setName(event.target.value)} />`}
        </${Field}>
        <${LimitFields} />
        <${Field} label="Bloom filter of a chunk" hint="16 to 255 bytes: 16 are enough for a few filter values in a chunk. It cannot be changed later.">
          ${(props) => html`<input ...${props} name="filter" type="number" min="16" max="255" placeholder="16" />`}
        </${Field}>
      </div>
    </${Form}>
  </${Dialog}>`
}
