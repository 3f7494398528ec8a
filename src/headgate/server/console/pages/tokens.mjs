// Tokens for scripts: made, shown once, revoked.

import { useState } from "../vendor/hooks.mjs"
import { ask, named, usePolled } from "../api.mjs"
import { Ago, Badge, Card, Check, Code, Confirm, Dialog, Empty, Field, Form, Icon, Loaded, Page, Table, Time, toast } from "../components.mjs"
import { html } from "../html.mjs"
import { change } from "../router.mjs"

const TIMES = [
  ["86400", "1 day"],
  ["2592000", "30 days"],
  ["31536000", "1 year"],
  ["", "never"],
]

export default function Tokens({ query }) {
  const tokens = usePolled("tokens", { everyMs: 15_000 })
  const [made, setMade] = useState(null)
  const create = html`<button type="button" class="primary" onClick=${() => change({ new: "1" })}><${Icon} name="plus" />Create a token</button>`
  const doomed = query.get("revoke")
  const revoke = async () => {
    await ask(named`tokens/${doomed}`, { method: "DELETE" })
    toast("The token is revoked.")
    tokens.reload()
  }
  return html`<${Page} title="Tokens" lead="For scripts: a token stands for its user, with that user's permissions at most." actions=${create}>
    <${Loaded} of=${tokens}>
      ${(rows) => html`<${Card} isFlush>
        <${Table} caption="tokens" columns=${COLUMNS} rows=${rows} keyOf=${(row) => row.id} empty=${html`<${Empty} title="No tokens yet"><p>A script with a token needs no password, and the token can be revoked alone.</p>${create}</${Empty}>`} />
      </${Card}>`}
    </${Loaded}>
    ${query.has("new") && !made && html`<${Create} onMade=${setMade} onDone=${tokens.reload} onClose=${() => change({ new: null })} />`}
    ${made &&
    html`<${Made}
      of=${made}
      onClose=${() => {
        setMade(null)
        change({ new: null })
      }}
    />`}
    ${doomed !== null &&
    html`<${Confirm} title="Revoke this token?" verb="Revoke" onConfirm=${revoke} onClose=${() => change({ revoke: null })}>
      <p><strong><bdi>${tokens.data?.find((row) => row.id === doomed)?.description ?? doomed}</bdi></strong>: scripts that use it are refused from now on.</p>
    </${Confirm}>`}
  </${Page}>`
}

const COLUMNS = [
  { id: "description", title: "For what", isWide: true, value: (row) => row.description, render: (row) => html`<bdi>${row.description || "–"}</bdi><small class="under mono">${row.id}</small>` },
  { id: "user", title: "User", value: (row) => row.user },
  { id: "may", title: "May", value: (row) => (row.read_only ? "read" : "read and change"), render: (row) => html`<${Badge}>${row.read_only ? "read" : "read and change"}</${Badge}>` },
  { id: "created", title: "Created", value: (row) => row.created_ms, render: (row) => html`<${Ago} ms=${row.created_ms} />` },
  { id: "expires", title: "Expires", value: (row) => row.expires_ms, render: (row) => (row.expires_ms === null ? "never" : html`<${Time} ms=${row.expires_ms} />`) },
  { id: "revoke", title: "", name: "Revoke", value: () => "", render: (row) => html`<button type="button" class="quiet" onClick=${() => change({ revoke: row.id })}>Revoke<span class="sr-only"> <bdi>${row.description}</bdi></span></button>` },
]

function Create({ onMade, onDone, onClose }) {
  const [given, setGiven] = useState({ description: "", expires: "2592000", isReadOnly: true })
  const set = (changes) => setGiven((before) => ({ ...before, ...changes }))
  const create = async () => {
    const body = { description: given.description, read_only: given.isReadOnly, ...(given.expires ? { expires_in_s: Number(given.expires) } : {}) }
    onMade(await ask("tokens", { method: "POST", body }))
    onDone()
  }
  return html`<${Dialog} title="Create a token" onClose=${onClose}>
    <${Form} verb="Create" onSubmit=${create} isReady=${given.description.trim() !== ""}>
      <${Field} label="For what" hint="So that you know later what stops when you revoke it.">
        ${(props) => html`<input ...${props} required maxlength="200" value=${given.description} autocomplete="off" onInput=${(event) => set({ description: event.target.value })} />`}
      </${Field}>
      <${Field} label="Expires after">
        ${(props) => html`<select ...${props} value=${given.expires} onChange=${(event) => set({ expires: event.target.value })}>${TIMES.map(([value, title]) => html`<option value=${value} selected=${value === given.expires}>${title}</option>`)}</select>`}
      </${Field}>
      <${Check} label="Only for reading" hint="It is refused for what changes something, and for other protocols than HTTP." isChecked=${given.isReadOnly} onChange=${(isReadOnly) => set({ isReadOnly })} />
    </${Form}>
  </${Dialog}>`
}

function Made({ of, onClose }) {
  return html`<${Dialog} title="The token" onClose=${onClose}>
    <div class="dialog-body fields">
      <p>It is shown this once: put it where the script finds it.</p>
      <${Code}>${of.token}</${Code}>
      <p class="note">Send it as <code>Authorization: Bearer TOKEN</code>, or as the password of HTTP Basic.</p>
    </div>
  </${Dialog}>`
}
