// Who is connected now.

import { usePolled } from "../api.mjs"
import { Ago, Badge, Card, Empty, Loaded, Page, Stat, Stats, Table } from "../components.mjs"
import { bytes, count, plain } from "../format.mjs"
import { html } from "../html.mjs"

export default function Connections() {
  const connections = usePolled("connections")
  return html`<${Page} title="Connections" lead="Who is connected now; without a tag that shows more, your own.">
    <${Loaded} of=${connections}>
      ${(rows) => {
        const held = rows.filter((row) => row.state === "flow").length
        const by = [...new Set(rows.map((row) => row.protocol))]
        return html`
          ${rows.length > 0 &&
          html`<${Stats}>
            <${Stat} label="Connections" value=${count(rows.length)} />
            ${by.slice(0, 4).map((name) => html`<${Stat} key=${name} label=${name} value=${count(rows.filter((row) => row.protocol === name).length)} />`)}
            <${Stat} label="Held back" value=${count(held)} tone=${held ? "warn" : undefined} note="the server reads no more from them for now" />
            <${Stat} label="Encrypted" value=${count(rows.filter((row) => row.encrypted).length)} />
          </${Stats}>`}
          <${Card} isFlush>
            <${Table} caption="connections" columns=${COLUMNS} rows=${rows} keyOf=${(row) => row.name} empty=${html`<${Empty} title="Nobody is connected"><p>Connections of every protocol are listed while they last; requests over HTTP are not.</p></${Empty}>`} />
          </${Card}>
        `
      }}
    </${Loaded}>
  </${Page}>`
}

const clientOf = ({ client }) => [client?.product, client?.version].filter(Boolean).map(plain).join(" ")

const COLUMNS = [
  {
    id: "client",
    title: "Client",
    isWide: true,
    value: (row) => `${clientOf(row)} ${row.peer_host}:${row.peer_port}`,
    render: (row) => html`<bdi>${clientOf(row) || "unnamed"}</bdi><small class="under"><bdi>${row.peer_host}:${row.peer_port}${row.client?.platform && `, ${plain(row.client.platform)}`}</bdi></small>`,
  },
  { id: "user", title: "User", value: (row) => row.user },
  { id: "protocol", title: "Protocol", value: (row) => row.protocol, render: (row) => html`<bdi>${row.protocol}</bdi><small class="under">${row.encrypted ? "encrypted" : "not encrypted"}, port ${row.port}</small>` },
  { id: "state", title: "State", value: (row) => (row.state === "flow" ? "held back" : row.state), render: (row) => (row.state === "flow" ? html`<${Badge} tone="warn" title="It publishes faster than is stored: the server reads no more from it for now">held back</${Badge}>` : html`<${Badge} tone="good">${row.state}</${Badge}>`) },
  { id: "received", title: "Received", isNumber: true, value: (row) => row.bytes_received, render: (row) => bytes(row.bytes_received) },
  { id: "sent", title: "Sent", isNumber: true, value: (row) => row.bytes_sent, render: (row) => bytes(row.bytes_sent) },
  { id: "opened", title: "Since", isNumber: true, value: (row) => row.opened_ms, render: (row) => html`<${Ago} ms=${row.opened_ms} />` },
]
