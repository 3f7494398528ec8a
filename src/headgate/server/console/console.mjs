// The page: login, views, and tables of the document. Everything that the server says becomes text, never markup.

import { Refresher } from "./refresh.mjs"
import { MOST_ROWS, VIEWS, listsOf, sorted, tablesOf, taken, understood } from "./tables.mjs"

const INTERVAL_MS = 5000
const LIMIT_MS = 30000

const element = (id) => document.getElementById(id)
const page = {
  login: element("login"),
  user: element("user"),
  password: element("password"),
  enter: element("enter"),
  notice: element("notice"),
  console: element("console"),
  leave: element("leave"),
  words: element("words"),
  state: element("state"),
  tables: element("tables"),
  links: [...document.querySelectorAll("nav a")],
}

let authorization = null
let isLoggedIn = false
/** The lists by their names, as the server told them last. */
const lists = new Map()
/** By caption: the title and the direction of the column that a table is sorted by. */
const orders = new Map()
/** By caption: the elements of a table that is shown. */
const drawn = new Map()

// asking

/** What the server says to one request: status and text, or `failure`. */
async function ask(list, signal) {
  const limit = new AbortController()
  const giveUp = () => limit.abort()
  const timer = setTimeout(giveUp, LIMIT_MS)
  signal.addEventListener("abort", giveUp, { once: true })
  try {
    // Without credentials of its own the browser opens no dialog for a login that is refused.
    const answer = await fetch(`api/${list}`, {
      headers: { Authorization: authorization },
      credentials: "omit",
      cache: "no-store",
      redirect: "error",
      referrerPolicy: "no-referrer",
      signal: limit.signal,
    })
    return understood(answer.status, await answer.text())
  } catch {
    return { trouble: "The server does not answer." }
  } finally {
    clearTimeout(timer)
    signal.removeEventListener("abort", giveUp)
  }
}

function answered(list, answer) {
  if (answer.login || (answer.trouble && !isLoggedIn)) {
    leave(answer.login ?? answer.trouble)
    return false
  }
  isLoggedIn = true
  page.login.hidden = true
  page.console.hidden = page.leave.hidden = false
  const clock = new Date().toLocaleTimeString()
  if (answer.trouble) {
    say(`${answer.trouble} What is shown is older; asked again in ${INTERVAL_MS / 1000} s.`)
    return false
  }
  say("")
  page.state.textContent = `as of ${clock}`
  lists.set(list, answer.rows ? taken(lists.get(list), answer.rows, performance.now()) : { refused: answer.refused })
  show()
  return true
}

const refresher = new Refresher({
  ask,
  answered,
  wanted: () => listsOf(view()),
  intervalMs: INTERVAL_MS,
  setTimer: (call, afterMs) => setTimeout(call, afterMs),
  clearTimer: (timer) => clearTimeout(timer),
})

// logging in

/** The header for HTTP Basic; its bytes are UTF-8. */
function basic(user, password) {
  const bytes = new TextEncoder().encode(`${user}:${password}`)
  return `Basic ${btoa(String.fromCharCode(...bytes))}`
}

function enter(event) {
  event.preventDefault()
  authorization = basic(page.user.value, page.password.value)
  page.password.value = ""
  page.enter.disabled = true
  say("Logging in; a refusal takes a second.")
  refresher.start()
}

function leave(sentence) {
  refresher.stop()
  authorization = null
  isLoggedIn = false
  lists.clear()
  orders.clear()
  drawn.clear()
  page.tables.replaceChildren()
  page.state.textContent = page.words.value = ""
  page.console.hidden = page.leave.hidden = true
  page.login.hidden = page.enter.disabled = false
  say(sentence)
  page.user.focus()
}

function say(sentence) {
  // The same sentence again would be read out again.
  if (page.notice.textContent !== sentence) page.notice.textContent = sentence
}

// showing

/** The view that the address names. */
function view() {
  const name = location.hash.slice(1)
  return Object.hasOwn(VIEWS, name) ? name : "overview"
}

function turn() {
  drawn.clear()
  page.tables.replaceChildren()
  show()
  refresher.now()
}

function show() {
  for (const link of page.links) {
    if (link.hash === `#${view()}`) link.setAttribute("aria-current", "page")
    else link.removeAttribute("aria-current")
  }
  const tables = tablesOf(view(), lists, page.words.value)
  page.tables.append(...tables.filter((table) => !drawn.has(table.caption)).map(frame))
  tables.forEach(fill)
}

function made(name, attributes = {}, ...children) {
  const one = document.createElement(name)
  for (const [attribute, value] of Object.entries(attributes)) {
    if (value) one.setAttribute(attribute, value)
  }
  one.append(...children)
  return one
}

/** A table without rows, in a part of the page that scrolls sideways. */
function frame({ caption }) {
  const parts = {
    head: made("tr"),
    body: made("tbody"),
    note: made("p", { class: "note" }),
    titles: null,
  }
  const table = made("table", {}, made("caption", {}, caption), made("thead", {}, parts.head), parts.body)
  const scrolled = made("div", { class: "scrolled", tabindex: "0", role: "region", "aria-label": caption }, table)
  drawn.set(caption, parts)
  return made("section", {}, scrolled, parts.note)
}

function fill(table) {
  const parts = drawn.get(table.caption)
  const titles = table.columns.map((one) => one.title).join("\n")
  if (parts.titles !== titles) {
    parts.titles = titles
    parts.head.replaceChildren(...table.columns.map((one) => heading(table, one)))
    parts.body.replaceChildren()
  }
  const rows = ordered(table, parts)
  const notes = [table.note]
  if (table.columns.length && !rows.length) notes.push("No rows.")
  if (rows.length > MOST_ROWS) notes.push(`The first ${MOST_ROWS} of ${rows.length} rows: filter them.`)
  const note = notes.filter(Boolean).join(" ")
  if (parts.note.textContent !== note) parts.note.textContent = note
  patch(parts.body, rows.slice(0, MOST_ROWS), table.columns)
}

function heading(table, { title, isNumber }) {
  const attributes = { scope: "col", class: isNumber && "number" }
  if (table.isFixed) return made("th", attributes, title)
  const button = made("button", { type: "button" }, title)
  button.addEventListener("click", () => sortBy(table.caption, title))
  return made("th", attributes, button)
}

function sortBy(caption, title) {
  const order = orders.get(caption)
  const isAgain = order?.title === title
  // Who sorts numbers looks for the largest; the third time the server's order is back.
  if (isAgain && !order.isDescending) orders.delete(caption)
  else orders.set(caption, { title, isDescending: !isAgain })
  show()
}

function ordered(table, parts) {
  const order = orders.get(table.caption)
  const place = order ? table.columns.findIndex((one) => one.title === order.title) : -1
  ;[...parts.head.children].forEach((cell, at) => {
    if (at === place) cell.setAttribute("aria-sort", order.isDescending ? "descending" : "ascending")
    else cell.removeAttribute("aria-sort")
  })
  return place < 0 ? table.rows : sorted(table.rows, place, order.isDescending)
}

/** Change what is different, so that what is selected or scrolled to stays. */
function patch(body, rows, columns) {
  while (body.rows.length > rows.length) body.lastElementChild.remove()
  while (body.rows.length < rows.length) body.append(row(columns))
  rows.forEach((cells, at) => {
    cells.forEach(({ text }, place) => {
      const cell = body.rows[at].cells[place]
      if (cell.textContent !== text) cell.textContent = text
    })
  })
}

function row(columns) {
  const cells = columns.map(({ isNumber }, place) => {
    const kind = isNumber && "number"
    return place ? made("td", { class: kind }) : made("th", { class: kind, scope: "row" })
  })
  return made("tr", {}, ...cells)
}

page.login.addEventListener("submit", enter)
page.leave.addEventListener("click", () => leave(""))
page.words.addEventListener("input", show)
addEventListener("hashchange", turn)
document.addEventListener("visibilitychange", () => {
  if (document.hidden) refresher.stop()
  else if (authorization) refresher.start()
})
page.login.hidden = false
