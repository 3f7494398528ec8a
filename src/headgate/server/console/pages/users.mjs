// Users with tags and permissions: made, changed, deleted; for administrators.

import { useState } from "../vendor/hooks.mjs"
import { ask, named, usePolled, useSession } from "../api.mjs"
import { Badge, Card, Check, Confirm, Dialog, Empty, Field, Form, Icon, Loaded, Page, Table, toast } from "../components.mjs"
import { html } from "../html.mjs"
import { change } from "../router.mjs"

const TAGS = [
  ["administrator", "sees and changes everything, users included"],
  ["monitoring", "sees all connections, jobs and pipelines"],
]
const PERMISSIONS = [
  ["configure", "Make, change and delete"],
  ["write", "Publish to"],
  ["read", "Read"],
]

export default function Users({ query }) {
  const users = usePolled("users", { everyMs: 15_000 })
  const create = html`<button type="button" class="primary" onClick=${() => change({ new: "1" })}><${Icon} name="plus" />Create a user</button>`
  const edited = users.data?.find((row) => row.name === query.get("edit"))
  const doomed = query.get("delete")
  const remove = async () => {
    await ask(named`users/${doomed}`, { method: "DELETE" })
    toast(`User ${doomed} is deleted.`)
    users.reload()
  }
  const columns = [
    { id: "name", title: "User", isWide: true, value: (row) => row.name, render: (row) => html`<bdi>${row.name}</bdi>${!row.has_password && html` <${Badge} tone="warn">no password</${Badge}>`}` },
    { id: "tags", title: "Tags", value: (row) => row.tags.join(", "), render: (row) => (row.tags.length ? row.tags.map((tag) => html`<${Badge} tone=${tag === "administrator" ? "info" : "plain"}><bdi>${tag}</bdi></${Badge}> `) : "–") },
    ...PERMISSIONS.map(([id, title]) => ({ id, title, value: (row) => row[id], render: (row) => (row[id] ? html`<code><bdi>${row[id]}</bdi></code>` : html`<span class="note">nothing</span>`) })),
    {
      id: "change",
      title: "",
      value: () => "",
      render: (row) => html`<span class="actions">
        <button type="button" class="quiet" onClick=${() => change({ edit: row.name })}>Change<span class="sr-only"> <bdi>${row.name}</bdi></span></button>
        <button type="button" class="quiet" onClick=${() => change({ delete: row.name })}>Delete<span class="sr-only"> <bdi>${row.name}</bdi></span></button>
      </span>`,
    },
  ]
  return html`<${Page} title="Users" lead="Permissions are patterns for names of streams, topics and groups, as in RabbitMQ." actions=${create}>
    <${Loaded} of=${users}>
      ${(rows) => html`<${Card} isFlush><${Table} caption="users" columns=${columns} rows=${rows} keyOf=${(row) => row.name} empty=${html`<${Empty} title="No users">${create}</${Empty}>`} /></${Card}>`}
    </${Loaded}>
    ${query.has("new") && html`<${Edit} onDone=${users.reload} onClose=${() => change({ new: null })} />`}
    ${edited && html`<${Edit} key=${edited.name} of=${edited} onDone=${users.reload} onClose=${() => change({ edit: null })} />`}
    ${doomed !== null &&
    html`<${Confirm} title="Delete this user?" verb="Delete" word=${doomed} onConfirm=${remove} onClose=${() => change({ delete: null })}>
      <p>Sessions, tokens and connections of <strong><bdi>${doomed}</bdi></strong> end. Streams stay.</p>
    </${Confirm}>`}
  </${Page}>`
}

function Edit({ of, onDone, onClose }) {
  const { session } = useSession()
  const [given, setGiven] = useState({ name: of?.name ?? "", password: "", tags: of?.tags ?? [], configure: of?.configure ?? "", write: of?.write ?? ".*", read: of?.read ?? ".*" })
  const set = (changes) => setGiven((before) => ({ ...before, ...changes }))
  const isOneself = of?.name === session?.user
  const save = async () => {
    const body = {
      tags: given.tags,
      permissions: { configure: given.configure, write: given.write, read: given.read },
      ...(given.password ? { password: given.password } : {}),
    }
    await ask(named`users/${given.name}`, { method: "PUT", body })
    toast(of ? `User ${given.name} is changed.` : `User ${given.name} is created.`)
    if (!(isOneself && given.password)) onDone()
  }
  const tags = [...new Set([...TAGS.map(([name]) => name), ...given.tags])]
  return html`<${Dialog} title=${of ? html`Change <bdi>${of.name}</bdi>` : "Create a user"} onClose=${onClose}>
    <${Form} verb=${of ? "Change" : "Create"} onSubmit=${save} onDone=${onClose} isReady=${given.name.trim() !== ""}>
      ${!of && html`<${Field} label="Name">${(props) => html`<input ...${props} required value=${given.name} autocomplete="off" autocapitalize="none" spellcheck=${false} onInput=${(event) => set({ name: event.target.value })} />`}</${Field}>`}
      <${Field} label=${of ? "New password" : "Password"} hint=${of ? `Empty: it stays.${isOneself ? " A new one ends this session." : ""}` : "Empty: the user cannot log in with a password."}>
        ${(props) => html`<input ...${props} type="password" value=${given.password} autocomplete="new-password" onInput=${(event) => set({ password: event.target.value })} />`}
      </${Field}>
      <fieldset class="choice">
        <legend>Tags</legend>
        ${tags.map((name) => html`<${Check} key=${name} label=${html`<bdi>${name}</bdi>`} hint=${TAGS.find(([one]) => one === name)?.[1]} isChecked=${given.tags.includes(name)} onChange=${(isOn) => set({ tags: isOn ? [...given.tags, name] : given.tags.filter((one) => one !== name) })} />`)}
      </fieldset>
      ${PERMISSIONS.map(
        ([name, title]) => html`<${Field} key=${name} label=${title} hint=${name === "configure" ? "A regular expression for names: .* is everything, empty is nothing." : undefined}>
          ${(props) => html`<input ...${props} class="mono" value=${given[name]} autocomplete="off" autocapitalize="none" spellcheck=${false} onInput=${(event) => set({ [name]: event.target.value })} />`}
        </${Field}>`,
      )}
    </${Form}>
  </${Dialog}>`
}
