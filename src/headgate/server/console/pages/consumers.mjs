// Who reads, with the filter in force and how far behind. An example of a page: an answer that is asked again, a table.

import { useMemo } from "../vendor/hooks.mjs"
import { usePolled } from "../api.mjs"
import { Badge, Card, Empty, Loaded, Page, Table } from "../components.mjs"
import { bytes, count, counted } from "../format.mjs"
import { html } from "../html.mjs"
import { href } from "../router.mjs"

export default function Consumers() {
  const consumers = usePolled("consumers")
  return html`<${Page} title="Consumers" lead="Who reads now, with the filter in force and how far behind.">
    <${Loaded} of=${consumers}>
      ${(rows) => html`<${Card} isFlush><${ConsumerTable} rows=${rows} /></${Card}>`}
    </${Loaded}>
  </${Page}>`
}

/** Also on the page of a stream, without the stream's name. */
export function ConsumerTable({ rows, isOfOneStream = false }) {
  const columns = useMemo(() => COLUMNS.filter((one) => !isOfOneStream || one.id !== "stream"), [isOfOneStream])
  return html`<${Table}
    caption="consumers"
    columns=${columns}
    rows=${rows}
    keyOf=${(row) => `${row.connection} ${row.stream} ${row.name} ${row.tag}`}
    empty=${html`<${Empty} title="Nobody reads now"><p>Consumers are listed while they are connected.</p></${Empty}>`}
  />`
}

const COLUMNS = [
  {
    id: "stream",
    title: "Stream",
    value: (row) => row.stream,
    render: (row) => html`<a href=${href(["streams", row.stream])}><bdi>${row.stream}</bdi></a>`,
  },
  {
    id: "name",
    title: "Consumer",
    value: (row) => row.name ?? row.tag,
    render: (row) => html`<bdi>${row.name ?? (row.tag || "–")}</bdi>${!row.active && html` <${Badge}>waiting</${Badge}>`}
      <small class="under"><bdi>${row.protocol}${row.user && `, ${row.user}`}</bdi></small>`,
  },
  { id: "filter", title: "Filter in force", isWide: true, value: filterText, render: (row) => html`<${FilterInForce} of=${row} />` },
  { id: "lag", title: "Lag", isNumber: true, value: (row) => row.lag, render: (row) => html`<span title=${counted(row.lag, "message")}>${count(row.lag)}</span>` },
  {
    id: "filtered",
    title: "Filtered lag",
    isNumber: true,
    value: (row) => row.filtered_lag,
    render: (row) => html`<span title="of these may match, as far as filter values and the match index know">${count(row.filtered_lag)}</span>`,
  },
  { id: "delivered", title: "Delivered", isNumber: true, value: (row) => row.delivered_messages, render: (row) => html`${count(row.delivered_messages)}<small class="under">${bytes(row.delivered_bytes)}</small>` },
  { id: "spared", title: "Spared by stage 1", isNumber: true, value: (row) => row.counters?.bytes_skipped, render: (row) => bytes(row.counters?.bytes_skipped) },
]

function filterText(row) {
  return [row.filter, ...(row.filter_values ?? [])].filter(Boolean).join(" ")
}

export function FilterInForce({ of: row }) {
  // A receiver has no place in the stream: it gets what its subscription or queue has.
  if (row.next_offset === null) return html`<span class="note">what its subscription or queue has</span>`
  if (!row.filter && !row.filter_values?.length) return html`<span class="note">none: every message</span>`
  return html`
    ${row.filter && html`<code class="filter-text-shown"><bdi>${row.filter}</bdi></code>`}
    ${row.filter_values?.length > 0 &&
    html`<small class="under">filter value ${row.filter_values.map((value, at) => html`${at > 0 && " or "}<code><bdi>${value}</bdi></code>`)}${row.match_unfiltered && ", or none"}</small>`}
    ${row.dialect && html`<small class="under">${row.dialect}</small>`}
  `
}
