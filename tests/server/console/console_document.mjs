// As much of a document as the console's program uses, and commands as lines of JSON: type, click, go to a view, tell what
// is shown. The program itself runs on top of it, against a running server. Markup is never parsed here.

import { createInterface } from "node:readline"

class Element extends EventTarget {
  constructor(name) {
    super()
    this.name = name
    this.children = []
    this.attributes = new Map()
    this.parent = null
    this.hidden = this.disabled = false
    this.value = ""
  }

  setAttribute(name, value) { this.attributes.set(name, String(value)) }
  removeAttribute(name) { this.attributes.delete(name) }
  get hash() { return this.attributes.get("href") }
  get lastElementChild() { return this.children.at(-1) }
  get rows() { return this.children }
  get cells() { return this.children }
  get textContent() { return this.children.map((child) => child.textContent ?? child).join("") }
  set textContent(text) { this.replaceChildren(text) }
  focus() { shown.focused = this.attributes.get("id") }
  remove() { this.parent.children.splice(this.parent.children.indexOf(this), 1) }
  replaceChildren(...children) { this.children = []; this.append(...children) }

  append(...children) {
    for (const child of children) {
      if (child instanceof Element) child.parent = this
      this.children.push(child instanceof Element ? child : String(child))
    }
  }

  all(name) {
    const inner = this.children.filter((child) => child instanceof Element)
    return [...inner.filter((child) => child.name === name), ...inner.flatMap((child) => child.all(name))]
  }
}

const shown = { focused: null }
const [program, address, views] = process.argv.slice(2)
/** What the page itself hides at first. */
const HIDDEN = ["login", "console", "leave"]
const byId = new Map()
const links = views.split(",").map((view) => {
  const link = new Element("a")
  link.setAttribute("href", `#${view}`)
  return link
})
const page = new EventTarget()
const ask = globalThis.fetch

globalThis.document = Object.assign(page, {
  hidden: false,
  createElement: (name) => new Element(name),
  querySelectorAll: () => links,
  getElementById: (id) => {
    if (!byId.has(id)) byId.set(id, Object.assign(new Element(id), { hidden: HIDDEN.includes(id) }))
    return byId.get(id)
  },
})
globalThis.location = { hash: "" }
globalThis.fetch = (path, options) => ask(new URL(path, address), options)
const windowEvents = new EventTarget()
globalThis.addEventListener = windowEvents.addEventListener.bind(windowEvents)

const table = (one) => ({
  caption: one.all("caption")[0].textContent,
  titles: one.all("thead")[0].all("th").map((cell) => cell.textContent),
  rows: one.all("tbody")[0].children.map((row) => row.children.map((cell) => cell.textContent)),
})

const commands = {
  login({ user, password }) {
    byId.get("user").value = user
    byId.get("password").value = password
    byId.get("login").dispatchEvent(new Event("submit", { cancelable: true }))
  },
  go({ view }) {
    location.hash = `#${view}`
    windowEvents.dispatchEvent(new Event("hashchange"))
  },
  filter({ words }) {
    byId.get("words").value = words
    byId.get("words").dispatchEvent(new Event("input"))
  },
  sort({ title }) {
    const buttons = byId.get("tables").all("button").filter((button) => button.textContent === title)
    buttons[0].dispatchEvent(new Event("click"))
  },
  leave() {
    byId.get("leave").dispatchEvent(new Event("click"))
  },
  show() {
    return {
      notice: byId.get("notice").textContent,
      password: byId.get("password").value,
      asks_login: !byId.get("login").hidden,
      shows_lists: !byId.get("console").hidden,
      current: links.filter((link) => link.attributes.has("aria-current")).map((link) => link.hash),
      notes: byId.get("tables").all("p").map((note) => note.textContent),
      tables: byId.get("tables").all("table").map(table),
    }
  },
}

await import(program)
const input = createInterface({ input: process.stdin })
input.on("line", (line) => {
  const { do: name, ...fields } = JSON.parse(line)
  process.stdout.write(JSON.stringify({ ok: commands[name](fields) ?? null }) + "\n")
})
input.on("close", () => process.exit(0))
