// Who did what, when, to which, with what outcome. The newest first; for administrators.

import { useMemo, useState } from "../vendor/hooks.mjs"
import { useAsked, usePolled } from "../api.mjs"
import { Ago, Badge, Card, Code, Empty, Icon, Loaded, Page, Time } from "../components.mjs"
import { counted, exact } from "../format.mjs"
import { html } from "../html.mjs"
import { change, href } from "../router.mjs"

const PAGE = 100

export default function Audit({ query }) {
  const wanted = { user: query.get("user") ?? "", action: query.get("action") ?? "" }
  const from = query.get("from")
  const rows = usePolled("audit", { query: { ...wanted, from, limit: PAGE }, everyMs: from === null ? 5000 : 600_000 })
  const counts = useAsked("audit/counts")
  const lead = "Administrative changes over every protocol; they are kept in the stream headgate.audit."
  const actions = html`<a class="button" href=${href(["messages", "headgate.audit"])}>The stream</a>`
  return html`<${Page} title="Audit" lead=${lead} actions=${actions}>
    ${counts.data && !counts.data.enabled && html`<p class="stale">Nothing is recorded now: the audit stream is switched off in the configuration.</p>`}
    ${counts.data?.lost > 0 && html`<p class="stale">${counted(counts.data.lost, "entry", "entries")} could not be written since the server started.</p>`}
    <${Filters} key=${`${wanted.user} ${wanted.action}`} wanted=${wanted} />
    <${Loaded} of=${rows}>${(data) => html`<${Entries} rows=${data} query=${query} isFiltered=${Boolean(wanted.user || wanted.action)} />`}</${Loaded}>
  </${Page}>`
}

function Filters({ wanted }) {
  const [given, setGiven] = useState(wanted)
  const submit = (event) => {
    event.preventDefault()
    change({ user: given.user.trim(), action: given.action.trim(), from: null, open: null })
  }
  const field = (name, title, hint) =>
    html`<label class="field grow"><span>${title}</span><input value=${given[name]} placeholder=${hint} autocomplete="off" autocapitalize="none" spellcheck=${false} onInput=${(event) => setGiven({ ...given, [name]: event.target.value })} /></label>`
  return html`<${Card}><form onSubmit=${submit} method="dialog">
    <div class="row">
      ${field("user", "User", "everybody")}
      ${field("action", "Action", "such as rule, or stream.delete")}
      <button type="submit" class="primary">Show</button>
      ${(wanted.user || wanted.action) && html`<button type="button" class="quiet" onClick=${() => change({ user: null, action: null, from: null })}>Show all</button>`}
    </div>
  </form></${Card}>`
}

const OUTCOMES = { done: "good", refused: "warn", failed: "bad" }

function Entries({ rows, query, isFiltered }) {
  const newest = useMemo(() => [...rows].reverse(), [rows])
  const isOld = query.has("from")
  const first = rows[0]?.offset ?? Number(query.get("from") ?? 0)
  const open = query.get("open")
  if (!rows.length && !isOld) {
    return html`<${Card}><${Empty} title=${isFiltered ? "No such entry among the last" : "Nothing was changed yet"}>
      <p>${isFiltered ? "Try another user or action." : "Whoever makes, changes or deletes something is recorded here."}</p>
    </${Empty}></${Card}>`
  }
  return html`<${Card} isFlush title=${isOld ? "Earlier entries" : "The last entries"} note=${rows.length > 0 && html`up to <${Ago} ms=${rows.at(-1).timestamp_ms} />`}>
    ${rows.length === 0 && html`<${Empty} title="None here"><p>Go on with earlier ones.</p></${Empty}>`}
    <ul class="copy-lines" aria-label="Entries">
      ${newest.map((row) => {
        const isOpen = open === String(row.offset)
        return html`<li class="copy-line" key=${row.offset} data-open=${isOpen}>
          <div class="copy-head">
            <button type="button" class="quiet audit-toggle" aria-expanded=${isOpen} aria-label=${`Entry ${row.offset}`} onClick=${() => change({ open: isOpen ? null : row.offset })}><${Icon} name="chevron" /></button>
            <a class="audit-user" href=${href(["audit"], { user: row.user })}><bdi>${row.user || "–"}</bdi></a>
            <a class="audit-action" href=${href(["audit"], { user: query.get("user"), action: row.action })}><code><bdi>${row.action}</bdi></code></a>
            <span class="copy-detail"><bdi>${row.subject}</bdi></span>
            <${Badge} tone=${OUTCOMES[row.outcome] ?? "plain"}>${row.outcome}</${Badge}>
            <span class="message-time"><${Time} ms=${row.timestamp_ms} /></span>
          </div>
          ${isOpen &&
          html`<div class="opened">
            <p class="note">From <bdi>${row.connection || "–"}</bdi> over <bdi>${row.protocol || "–"}</bdi>, entry ${exact(row.offset)}.</p>
            <${Code}>${JSON.stringify(row.detail ?? null, null, 2)}</${Code}>
          </div>`}
        </li>`
      })}
    </ul>
    ${(isOld || first > 0) &&
    html`<div class="table-foot">
      <span></span>
      <span class="actions">
        <button type="button" disabled=${!isOld} onClick=${() => change({ from: null, open: null })}>Newest</button>
        <button type="button" disabled=${first <= 0} onClick=${() => change({ from: Math.max(0, first - PAGE), open: null })}>Earlier</button>
      </span>
    </div>`}
  </${Card}>`
}
