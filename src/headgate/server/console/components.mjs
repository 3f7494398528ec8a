// What pages are made of. Read one page (pages/consumers.mjs) first: it uses most of these.
//
//     Page            title, crumbs, actions, then the view: <${Page} title="Streams" actions=${…}>…</${Page}>
//     Card            a part of a page with a heading: <${Card} title="Segments" note="…" actions=${…}>
//     Stat, Stats     a number with its name, and a link to where it is explained; a row of them
//     Chart           lines over time: times in ms, series [{label, values, show (a format)}]
//     Bars            a small bar chart of counts, such as chunk sizes: [{label, value, text}]
//     Meter           a share of a whole, with words
//     Stack           what a whole is made of, in one bar, with a legend: [{label, value, tone?}]
//     Table           columns [{id, title, value(row), render?(row), isNumber?, isWide?}], rows, keyOf(row). Sorts, filters
//                     by words and pages; all of it is in the URL, with `id` before its names where a page has two tables
//     Facts           names and values: [[name, value], …]
//     Badge           a word with a colour: tone "good", "warn", "bad", "info" or "plain"
//     Time, Ago       a moment; how long ago, with the moment as its title
//     Code            text as it is, with "Copy"
//     Tabs            tabs [{id, title, count?}] whose choice is in the URL as `tab`; use `useTab(tabs)` for the current one
//     FilterBox       a filter with a choice of language, checked while typing; the wrong place is underlined, with a caret
//     Field           label, hint and error around an input: <${Field} label="Name">${(props) => html`<input ...${props} />`}</${Field}>
//     Check           a tick box with its label;  Pairs  names with values that a form asks for
//     Dialog          a modal form: title, onClose; <${Confirm} title verb onConfirm onClose /> asks before something is lost
//     Empty, Skeleton, Trouble       nothing here (and what to do), not answered yet, a Problem with "Try again"
//     Loaded          one of the three before, or the view: <${Loaded} of=${asked}>${(data) => html`…`}</${Loaded}>
//     Copy            a button that copies text;  toast("Deleted.", "good") says something for some seconds, read out, too
//     Icon            by name, drawn in the text's colour; decoration only
//
// Values become text and never markup: nothing here or in a page sets HTML, and the server's policy forbids it.
// Numbers, sizes and times are formatted by format.mjs; addresses are made by `href` of router.mjs.

import { useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from "./vendor/hooks.mjs"
import { ask } from "./api.mjs"
import { ago, count, exact, moment } from "./format.mjs"
import { html } from "./html.mjs"
import { change, href, usePlace } from "./router.mjs"
import uPlot from "./vendor/uplot.mjs"

// pages

export function Page({ title, crumbs = [], actions, lead, children }) {
  const heading = useRef(null)
  useEffect(() => {
    document.title = `${title} · Headgate`
  }, [title])
  // A reader of the screen hears where a link led; the first page after the login does not take the focus from the field.
  useEffect(() => heading.current?.focus({ preventScroll: true }), [])
  return html`
    <div class="page">
      <header class="page-head">
        <div>
          ${crumbs.length > 0 &&
          html`<nav class="crumbs" aria-label="Above this page">
            ${crumbs.map(([name, to]) => html`<a href=${to}>${name}</a><span aria-hidden="true">/</span>`)}
          </nav>`}
          <h1 ref=${heading} tabindex="-1"><bdi>${title}</bdi></h1>
          ${lead && html`<p class="lead">${lead}</p>`}
        </div>
        ${actions && html`<div class="actions">${actions}</div>`}
      </header>
      ${children}
    </div>
  `
}

export function Card({ title, note, actions, children, isFlush = false }) {
  const id = useId()
  return html`
    <section class=${isFlush ? "card flush" : "card"} aria-labelledby=${title ? id : undefined}>
      ${title &&
      html`<header class="card-head">
        <h2 id=${id}>${title}</h2>
        ${note && html`<p class="note">${note}</p>`}
        ${actions && html`<div class="actions">${actions}</div>`}
      </header>`}
      ${children}
    </section>
  `
}

export const Stats = ({ children }) => html`<dl class="stats">${children}</dl>`

/** A number with its name; `tone` colours it, `to` leads to more about it. */
export function Stat({ label, value, note, tone, to }) {
  return html`
    <div class="stat" data-tone=${tone}>
      <dt>${to ? html`<a href=${to}>${label}</a>` : label}</dt>
      <dd>${value}${note && html`<small>${note}</small>`}</dd>
    </div>
  `
}

/** Says that filters look into bodies where no paths are; nothing while all bodies that were looked at are readable. */
export const UnreadableBodies = ({ of: { bodies_sampled: sampled, bodies_unreadable: unreadable } }) =>
  unreadable > 0 &&
  html`<p class="stale">Of ${exact(sampled)} bodies that were looked at, ${exact(unreadable)} ${unreadable === 1 ? "is" : "are"} not what filters with paths expect: not JSON, or not of the stream's schema. Every path is unknown there.</p>`

export function Facts({ of }) {
  return html`<dl class="facts">${of.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`
}

// words

export const Badge = ({ tone = "plain", title, children }) =>
  html`<span class="badge" data-tone=${tone} title=${title}>${children}</span>`

export function Time({ ms, date }) {
  if (ms === null || ms === undefined) return "–"
  const at = new Date(ms)
  const iso = Number.isNaN(at.getTime()) ? undefined : at.toISOString()
  return html`<time datetime=${iso} title=${iso}>${moment(ms, { date })}</time>`
}

export function Ago({ ms }) {
  if (ms === null || ms === undefined) return "–"
  const at = new Date(ms)
  return html`<time title=${Number.isNaN(at.getTime()) ? undefined : at.toISOString()}>${ago(ms)}</time>`
}

export function Code({ children, isCopied = true }) {
  return html`<div class="code"><pre tabindex="0"><bdi>${children}</bdi></pre>${isCopied && html`<${Copy} text=${children} />`}</div>`
}

export function Copy({ text, label = "Copy" }) {
  const copy = async () => {
    const isCopied = await copied(typeof text === "function" ? text() : String(text))
    toast(isCopied ? "Copied." : "The browser does not let this page copy.", isCopied ? "good" : "bad")
  }
  return html`<button type="button" class="quiet" onClick=${copy}><${Icon} name="copy" />${label}</button>`
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch {
    // Browsers have a clipboard for pages under TLS or on this machine only: select and copy, the older way.
    const field = document.createElement("textarea")
    field.value = text
    field.className = "off-screen"
    ;(document.querySelector("dialog[open]") ?? document.body).append(field)
    field.select()
    const isCopied = document.execCommand("copy")
    field.remove()
    return isCopied
  }
}

// states

export function Empty({ title, children }) {
  return html`<div class="empty"><p class="empty-title">${title}</p>${children}</div>`
}

export function Skeleton({ lines = 4 }) {
  return html`<div class="skeleton" role="status" aria-label="Loading">
    ${Array.from({ length: lines }, () => html`<span></span>`)}
  </div>`
}

export function Trouble({ problem, retry }) {
  const title =
    problem.status === 403 ? "You may not see this" : problem.status === 404 ? "Not found" : "This did not work"
  return html`<div class="trouble" role="alert">
    <p><strong>${title}.</strong> <bdi>${problem.span ? problem.message.split("\n")[0] : problem.message}</bdi></p>
    ${problem.text !== undefined && problem.span && html`<${Caret} text=${problem.text} span=${problem.span} />`}
    ${retry && problem.status !== 400 && html`<button type="button" onClick=${retry}>Try again</button>`}
  </div>`
}

/** The view of an answer (`usePolled`, `useAsked`), or why there is none. What is older than its problem stays. */
export function Loaded({ of, lines, children }) {
  if (of.isLoading) return html`<${Skeleton} lines=${lines} />`
  if (of.data === null) return of.problem && html`<${Trouble} problem=${of.problem} retry=${of.reload} />`
  return html`
    ${of.problem &&
    html`<p class="stale" role="status">${of.problem.message} What is shown is of ${moment(of.at)}; asked again soon.</p>`}
    ${children(of.data)}
  `
}

const toasts = { shown: [], listen: () => {} }

/** Say something for some seconds; tone "good" or "bad". */
export function toast(text, tone = "good") {
  const one = { text, tone }
  toasts.shown = [...toasts.shown.slice(-3), one]
  toasts.listen()
  setTimeout(
    () => {
      toasts.shown = toasts.shown.filter((each) => each !== one)
      toasts.listen()
    },
    tone === "bad" ? 10_000 : 4000,
  )
}

export function Toasts() {
  const [, turn] = useState(0)
  toasts.listen = () => turn((number) => number + 1)
  return html`<div class="toasts" role="status" aria-live="polite">
    ${toasts.shown.map((one) => html`<p data-tone=${one.tone}>${one.text}</p>`)}
  </div>`
}

// dialogs and forms

export function Dialog({ title, onClose, isWide = false, children }) {
  const element = useRef(null)
  const id = useId()
  useEffect(() => {
    element.current.showModal()
  }, [])
  return html`
    <dialog ref=${element} class=${isWide ? "wide" : undefined} aria-labelledby=${id} onClose=${onClose}>
      <header>
        <h2 id=${id}>${title}</h2>
        <button type="button" class="quiet" aria-label="Close" onClick=${() => element.current.close()}>
          <${Icon} name="close" />
        </button>
      </header>
      ${children}
    </dialog>
  `
}

/** Ask before something is lost. `onConfirm` may be asynchronous; its Problem is shown. `word` must be typed if given. */
export function Confirm({ title, verb, word, isDangerous = true, onConfirm, onClose, children }) {
  const [typed, setTyped] = useState("")
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <${Form} verb=${verb} isDangerous=${isDangerous} onSubmit=${onConfirm} onDone=${onClose} isReady=${!word || typed === word}>
      ${children}
      ${word &&
      html`<${Field} label=${html`Type <strong><bdi>${word}</bdi></strong> to confirm`}>
        ${(props) =>
          html`<input ...${props} value=${typed} autocomplete="off" spellcheck=${false} onInput=${(event) => setTyped(event.target.value)} />`}
      </${Field}>`}
    </${Form}>
  </${Dialog}>`
}

/** A form that says what went wrong and is sent once: `onSubmit` is asynchronous, `onDone` comes after it. */
export function Form({ verb, onSubmit, onDone, isDangerous = false, isReady = true, children }) {
  const [state, setState] = useState({ isSent: false, problem: null })
  const submit = async (event) => {
    event.preventDefault()
    if (state.isSent || !isReady) return
    setState({ isSent: true, problem: null })
    try {
      await onSubmit()
      setState({ isSent: false, problem: null })
      onDone?.()
    } catch (problem) {
      setState({ isSent: false, problem })
    }
  }
  return html`<form onSubmit=${submit} method="dialog">
    ${children}
    ${state.problem && html`<${Trouble} problem=${state.problem} />`}
    <footer class="actions">
      <button type="submit" class=${isDangerous ? "danger" : "primary"} disabled=${state.isSent || !isReady}>
        ${state.isSent ? "…" : verb}
      </button>
    </footer>
  </form>`
}

export function Field({ label, hint, children }) {
  const id = useId()
  const props = { id, "aria-describedby": hint ? `${id}-hint` : undefined }
  return html`<div class="field">
    <label for=${id}>${label}</label>
    ${children(props)}
    ${hint && html`<p class="hint" id=${`${id}-hint`}>${hint}</p>`}
  </div>`
}

export function Check({ label, hint, isChecked, onChange, ...props }) {
  return html`<div class="field">
    <label class="check"><input type="checkbox" ...${props} ...${isChecked === undefined ? {} : { checked: isChecked }} onChange=${(event) => onChange?.(event.target.checked)} />${label}</label>
    ${hint && html`<p class="hint">${hint}</p>`}
  </div>`
}

/** Names with values: `of` is a list of [name, text], `onChange(list)`; an empty line is always there to be filled. */
export function Pairs({ label, hint, of, onChange, name = "Name", value = "Value" }) {
  const lines = [...of, ["", ""]]
  const set = (at, part, text) => {
    const next = lines.map((one, number) => (number === at ? (part === 0 ? [text, one[1]] : [one[0], text]) : one))
    onChange(next.filter(([first, second], number) => first || second || number < lines.length - 1).filter(([first, second]) => first || second))
  }
  return html`<fieldset class="pairs">
    <legend>${label}</legend>
    ${lines.map(
      (one, at) => html`<div class="pair" key=${at}>
        ${[name, value].map(
          (title, part) => html`<input aria-label=${`${title} ${at + 1}`} placeholder=${title} value=${one[part]} autocomplete="off" spellcheck=${false} onInput=${(event) => set(at, part, event.target.value)} />`,
        )}
      </div>`,
    )}
    ${hint && html`<p class="hint">${hint}</p>`}
  </fieldset>`
}

/** A plain JSON value as a person types it: numbers, true, false and null are what they look like, the rest is text. */
export function valueOf(text) {
  const trimmed = text.trim()
  return /^(true|false|null|-?\d+(\.\d+)?([eE][+-]?\d+)?|".*"|\{.*\})$/s.test(trimmed) ? parsedOr(trimmed, text) : text
}

function parsedOr(text, other) {
  try {
    return JSON.parse(text)
  } catch {
    return other
  }
}

/** Text with a caret under the wrong place, as on the command line. */
export function Caret({ text, span }) {
  const [from, to] = span
  const before = text.slice(0, from).split("\n")
  const line = text.split("\n")[before.length - 1] ?? ""
  const carets = Math.max(1, Math.min(to, from + line.length - before.at(-1).length) - from)
  // A tab or a wide letter before the place is taken over, so that the caret stays below it.
  const space = [...before.at(-1)].map((letter) => (letter === "\t" ? "\t" : letter > "\u1100" ? "\u3000" : " ")).join("")
  return html`<pre class="caret" tabindex="0">${line}${"\n"}${space}<b>${"^".repeat(carets)}</b></pre>`
}

const CHECK_MS = 250
let languages = null

/** The languages that the server has, which it is asked for once, and the chosen one, also where it does not answer. */
function useLanguages(chosen) {
  const [listed, setListed] = useState([])
  useEffect(() => {
    languages ??= ask("languages").catch(() => {
      languages = null
      return []
    })
    languages.then((found) => setListed(found.filter((each) => !each.is_list)))
  }, [])
  return listed.some((each) => each.name === chosen) ? listed : [...listed, { name: chosen, title: chosen }]
}

/**
 * A filter: `text`, `language`, `onText(text)`, `onLanguage(language)`, `onSubmit()`, `onChecked(answer or null)`. It is
 * checked a moment after the last key; the wrong place is underlined, and said below with a caret.
 */
export function FilterBox({ text, language, onText, onLanguage, onSubmit, onChecked, label = "Filter", actions }) {
  const id = useId()
  const offered = useLanguages(language)
  const [checked, setChecked] = useState(null)
  const field = useRef(null)
  useEffect(() => {
    setChecked(null)
    if (!text.trim()) {
      onChecked?.(null)
      return undefined
    }
    const given = new AbortController()
    const timer = setTimeout(async () => {
      try {
        const answer = await ask("filters/check", { method: "POST", body: { text, language }, signal: given.signal })
        setChecked({ text, ...answer })
        onChecked?.(answer)
      } catch {
        // Not checked: the server says what is wrong when the filter is used.
      }
    }, CHECK_MS)
    return () => {
      clearTimeout(timer)
      given.abort()
    }
  }, [text, language])
  useLayoutEffect(() => {
    const area = field.current
    area.style.height = "auto"
    area.style.height = `${area.scrollHeight + 2}px`
  }, [text])
  const isWrong = checked !== null && checked.text === text && !checked.ok
  const press = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault()
      onSubmit?.()
    }
  }
  return html`
    <div class="filter" data-state=${isWrong ? "wrong" : checked?.ok ? "right" : undefined}>
      <div class="filter-row">
        <label for=${id}>${label}</label>
        <div class="filter-text">
          <div class="filter-marks" aria-hidden="true">${isWrong && checked.span && html`<${Marks} text=${text} span=${checked.span} />`}</div>
          <textarea
            ref=${field}
            id=${id}
            rows="1"
            value=${text}
            spellcheck=${false}
            autocapitalize="none"
            autocomplete="off"
            placeholder="no filter: every message"
            aria-invalid=${isWrong}
            aria-describedby=${`${id}-said`}
            onInput=${(event) => onText(event.target.value)}
            onKeyDown=${press}
          ></textarea>
        </div>
        <label class="sr-only" for=${`${id}-language`}>Language of the filter</label>
        <select id=${`${id}-language`} value=${language} onChange=${(event) => onLanguage(event.target.value)}>
          ${offered.map(({ name, title }) => html`<option value=${name} selected=${name === language}>${title}</option>`)}
        </select>
        ${actions}
      </div>
      <div class="filter-said" id=${`${id}-said`} aria-live="polite">
        ${isWrong && html`${checked.span && html`<${Caret} text=${text} span=${checked.span} />`}<p>${checked.reason ?? checked.error}</p>`}
        ${checked?.ok &&
        checked.fields?.length > 0 &&
        html`<p class="note">
          Reads ${checked.fields.map((name, at) => html`${at > 0 && ", "}<code><bdi>${name}</bdi></code>`)}${checked.filter_values?.length > 0 &&
          html`; only messages with the filter value ${checked.filter_values.map((value, at) => html`${at > 0 && " or "}<code><bdi>${value}</bdi></code>`)} can match`}.
        </p>`}
      </div>
    </div>
  `
}

function Marks({ text, span: [from, to] }) {
  return html`${text.slice(0, from)}<mark>${text.slice(from, Math.max(to, from + 1)) || " "}</mark>${text.slice(Math.max(to, from + 1))}`
}

// tabs

/** The tab that the URL names, else the first. */
export function useTab(tabs) {
  const named = usePlace().query.get("tab")
  return tabs.some((one) => one.id === named) ? named : tabs[0].id
}

export function Tabs({ tabs, label = "Parts of this page" }) {
  const current = useTab(tabs)
  const { parts, query } = usePlace()
  const to = (id) => {
    const next = new URLSearchParams(query)
    next.set("tab", id)
    return href(parts, next)
  }
  // Links, not the role "tab": each is an address of its own.
  return html`<nav class="tabs" aria-label=${label}>
    ${tabs.map(
      (one) => html`<a href=${to(one.id)} aria-current=${one.id === current ? "page" : undefined}>
        ${one.title}${one.count !== undefined && one.count !== null && html`<span class="pill">${count(one.count)}</span>`}
      </a>`,
    )}
  </nav>`
}

// tables

const PAGE_ROWS = 50

/**
 * `columns`: `id`, `title`, `value(row)` to sort and filter by, `render(row)` where that is not shown as it is, `isNumber`,
 * `isWide` for the column that gets the room. `note` says what is in the table; `empty` what to do if there is nothing.
 */
export function Table({ caption, columns, rows, keyOf, id = "", empty, isFiltered = rows.length > 8, pageRows = PAGE_ROWS, tools }) {
  const { query } = usePlace()
  const name = (part) => (id ? `${id}-${part}` : part)
  const words = query.get(name("q")) ?? ""
  const order = query.get(name("sort")) ?? ""
  const page = Math.max(1, Number(query.get(name("page"))) || 1)
  const isDescending = order.startsWith("-")
  const sortedBy = columns.find((one) => one.id === order.replace(/^-/, ""))
  const shown = useMemo(() => {
    const wanted = words.toLowerCase().split(/\s+/).filter(Boolean)
    const found = wanted.length
      ? rows.filter((row) => {
          const whole = columns.map((one) => textOf(one.value(row))).join("\n").toLowerCase()
          return wanted.every((word) => whole.includes(word))
        })
      : rows
    return sortedBy ? sorted(found, sortedBy.value, isDescending) : found
  }, [rows, words, order])
  const pages = Math.max(1, Math.ceil(shown.length / pageRows))
  const at = Math.min(page, pages)
  const part = shown.slice((at - 1) * pageRows, at * pageRows)
  const sort = (column) => {
    // Numbers are sorted to find the largest; the third time the server's order is back.
    const [first, second] = column.isNumber ? [`-${column.id}`, column.id] : [column.id, `-${column.id}`]
    change({ [name("sort")]: order === first ? second : order === second ? null : first, [name("page")]: null })
  }
  return html`
    <div class="table">
      ${(isFiltered || words || tools) &&
      html`<div class="table-tools">
        ${(isFiltered || words) &&
        html`<input
          type="search"
          aria-label=${`Rows of ${caption} with`}
          placeholder="Find in rows"
          value=${words}
          autocomplete="off"
          spellcheck=${false}
          onInput=${(event) => change({ [name("q")]: event.target.value, [name("page")]: null })}
        />`}
        ${tools}
      </div>`}
      ${rows.length === 0
        ? (empty ?? html`<${Empty} title="Nothing here" />`)
        : html`<div class="table-scroll">
            <table>
              <caption class="sr-only">${caption}</caption>
              <thead>
                <tr>
                  ${columns.map(
                    (one) => html`<th
                      key=${one.id}
                      scope="col"
                      class=${kindOf(one)}
                      aria-sort=${one === sortedBy ? (isDescending ? "descending" : "ascending") : undefined}
                    >
                      ${one.title
                        ? html`<button type="button" onClick=${() => sort(one)}>${one.title}<${Icon} name="sort" /></button>`
                        : html`<span class="sr-only">${one.name ?? "Actions"}</span>`}
                    </th>`,
                  )}
                </tr>
              </thead>
              <tbody>
                ${part.map(
                  (row) => html`<tr key=${keyOf(row)}>
                    ${columns.map(
                      (one) => html`<td key=${one.id} class=${kindOf(one)} data-title=${one.title}>
                        <div>${one.render ? one.render(row) : html`<bdi>${textOf(one.value(row))}</bdi>`}</div>
                      </td>`,
                    )}
                  </tr>`,
                )}
              </tbody>
            </table>
          </div>`}
      ${rows.length > 0 && shown.length === 0 && html`<${Empty} title="No row has these words" />`}
      ${(pages > 1 || words) &&
      html`<div class="table-foot" role="status">
        <span>${count(shown.length)}${shown.length < rows.length ? ` of ${count(rows.length)}` : ""} rows</span>
        ${pages > 1 &&
        html`<span class="actions">
          <button type="button" disabled=${at <= 1} onClick=${() => change({ [name("page")]: at - 1 })}>Previous</button>
          <span>${at} of ${pages}</span>
          <button type="button" disabled=${at >= pages} onClick=${() => change({ [name("page")]: at + 1 })}>Next</button>
        </span>`}
      </div>`}
    </div>
  `
}

const kindOf = (column) => [column.isNumber && "number", column.isWide && "wide"].filter(Boolean).join(" ") || undefined

function textOf(value) {
  if (value === null || value === undefined) return "–"
  return typeof value === "number" ? count(value) : String(value)
}

/** Rows in the order of a value; numbers before texts, nothing last. */
export function sorted(rows, value, isDescending) {
  const rank = (one) => (one === null || one === undefined || one === "" ? 2 : typeof one === "number" ? 0 : 1)
  return [...rows].sort((one, other) => {
    const [a, b] = [value(one), value(other)]
    if (rank(a) !== rank(b)) return rank(a) - rank(b)
    const order = a < b ? -1 : a > b ? 1 : 0
    return isDescending ? -order : order
  })
}

// charts

const COLOURS = ["--series-1", "--series-2", "--series-3", "--series-4"]
/** Steps of an axis that counts things: there is no half of one. */
const WHOLE = Array.from({ length: 14 }, (_, power) => [1, 2, 5].map((one) => one * 10 ** power)).flat()
const dark = matchMedia("(prefers-color-scheme: dark)")

/**
 * Lines over time. `times` in ms; `series`: `{label, values, show}` with one value or null per time, and the format that
 * shows it. The values at the pointer, else the last ones, are said above; the picture has them as its description.
 */
export function Chart({ title, times, series, height = 140 }) {
  const box = useRef(null)
  const plot = useRef(null)
  const [at, setAt] = useState(null)
  const [isDark, setDark] = useState(dark.matches)
  const data = [times.map((ms) => ms / 1000), ...series.map((one) => one.values)]
  useEffect(() => {
    const listen = () => setDark(dark.matches)
    dark.addEventListener("change", listen)
    return () => dark.removeEventListener("change", listen)
  }, [])
  useEffect(() => {
    const colour = (name) => getComputedStyle(box.current).getPropertyValue(name).trim()
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false }, font: `11px ${colour("--sans")}` }
    const made = new uPlot(
      {
        width: box.current.clientWidth,
        height,
        legend: { show: false },
        cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
        padding: [8, 26, 0, 0],
        scales: { x: { range: (_, from, to) => [Math.min(from ?? 0, (to ?? 0) - 60), to ?? 0] }, y: { range: (_, least, most) => [Math.min(0, least ?? 0), most > 0 ? most * 1.1 : 100] } },
        axes: [
          { ...axis, size: 24, splits: timeSplits, values: (_, seconds) => seconds.map((one) => clock(one, seconds)) },
          { ...axis, size: 62, space: 34, ...(series[0].show === count ? { incrs: WHOLE } : {}), values: (_, values) => values.map((one) => series[0].show(one)) },
        ],
        series: [
          {},
          ...series.map((one, number) => {
            const stroke = colour(one.colour ?? COLOURS[number])
            return { label: one.label, stroke, width: 1.5, fill: series.length === 1 ? `${stroke}1f` : undefined, points: { show: false }, spanGaps: false }
          }),
        ],
        hooks: { setCursor: [(self) => setAt(self.cursor.left >= 0 ? self.cursor.idx : null)] },
      },
      data,
      box.current,
    )
    plot.current = made
    const element = box.current
    const watch = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }))
    watch.observe(element)
    return () => {
      watch.disconnect()
      made.destroy()
    }
  }, [isDark, series.length, height])
  useEffect(() => plot.current.setData(data), [times, series])
  const last = times.length - 1
  const place = at === null || at > last ? last : at
  const said = series.map((one) => `${one.label} ${one.show(one.values[last] ?? null)}, at most ${one.show(most(one.values))}`).join("; ")
  return html`<figure class="chart">
    <figcaption>
      <span class="legend">
        ${series.map(
          (one, number) => html`<span><i data-series=${number + 1} data-colour=${one.colour}></i>${one.label} <b>${one.show(one.values[place] ?? null)}</b></span>`,
        )}
      </span>
      <span class="note">${times.length ? (at === null ? "now" : moment(times[place], { date: "never" }).slice(0, 8)) : "no history yet"}</span>
    </figcaption>
    <div ref=${box} class="plot" role="img" aria-label=${`${title}, the last ${Math.max(1, Math.round(((times[last] ?? 0) - (times[0] ?? 0)) / 60_000))} minutes: ${said}`}></div>
  </figure>`
}

const STEPS_S = [5, 10, 15, 30, 60, 120, 300, 600]
const LABEL_PX = 76

/** Where an axis of time has its labels: at whole steps, as many as have room. */
function timeSplits(plot, _, from, to) {
  const room = Math.max(1, Math.floor(plot.bbox.width / devicePixelRatio / LABEL_PX))
  const step = STEPS_S.find((one) => (to - from) / one <= room) ?? Math.ceil((to - from) / room)
  const first = Math.ceil(from / step)
  return Array.from({ length: Math.max(0, Math.floor(to / step) - first + 1) }, (_, at) => (first + at) * step)
}

function clock(second, all) {
  return moment(second * 1000, { date: "never" }).slice(0, all.some((one) => one % 60) ? 8 : 5)
}

const most = (values) => values.reduce((found, one) => (one !== null && one > (found ?? -Infinity) ? one : found), null)

/** Counts side by side, such as how many chunks have which size. */
export function Bars({ title, of }) {
  const largest = Math.max(1, ...of.map((one) => one.value))
  return html`<ul class="bars" aria-label=${title}>
    ${of.map(
      (one) => html`<li>
        <span class="bars-label">${one.label}</span>
        <span class="bars-track"><i style=${{ width: `${(100 * one.value) / largest}%` }}></i></span>
        <span class="bars-value">${one.text ?? count(one.value)}</span>
      </li>`,
    )}
  </ul>`
}

/** The parts of a whole in one bar; its numbers are the legend. */
export function Stack({ title, of }) {
  const parts = of.filter((one) => one.value > 0)
  const whole = parts.reduce((sum, one) => sum + one.value, 0)
  return html`<div class="stack">
    <span class="stack-track" aria-hidden="true">${parts.map((one) => html`<i data-tone=${one.tone} style=${{ flexGrow: one.value / whole }}></i>`)}</span>
    <ul class="stack-legend" aria-label=${title}>
      ${of.map((one) => html`<li data-zero=${!one.value}><i data-tone=${one.tone} aria-hidden="true"></i>${one.label} <b>${one.to && one.value ? html`<a href=${one.to}>${count(one.value)}</a>` : count(one.value)}</b></li>`)}
    </ul>
  </div>`
}

export function Meter({ label, share, text, tone }) {
  return html`<div class="meter" data-tone=${tone}>
    <span class="meter-words"><span>${label}</span><b>${text}</b></span>
    <span class="meter-track" role="meter" aria-label=${label} aria-valuemin="0" aria-valuemax="1" aria-valuenow=${share} aria-valuetext=${text}>
      <i style=${{ width: `${Math.min(100, share * 100)}%` }}></i>
    </span>
  </div>`
}

// icons

const ICONS = {
  overview: "M2.5 9.5l3-4 3 2.5 5-5.5M2.5 13.5h11",
  streams: "M2 4.5c2-1.5 4 1.5 6 0s4-1.5 6 0M2 8.5c2-1.5 4 1.5 6 0s4-1.5 6 0M2 12.5c2-1.5 4 1.5 6 0s4-1.5 6 0",
  messages: "M2.5 3.5h11v8h-6l-3 2.5v-2.5h-2zM5 6.5h6M5 8.8h4",
  why: "M5.5 6a2.5 2.5 0 1 1 3.6 2.2c-.8.4-1.1.9-1.1 1.8M8 12.6v.4M8 1.5a6.5 6.5 0 1 0 0 13a6.5 6.5 0 0 0 0-13",
  consumers: "M3 8h8M8 5l3 3-3 3M13.5 3v10",
  topics: "M3 8h3l3-4.5h4M6 8l3 4.5h4M6 8h7",
  groups: "M6 7.5a2 2 0 1 0 0-4a2 2 0 0 0 0 4M2.5 13c0-2.5 1.5-3.7 3.5-3.7s3.5 1.2 3.5 3.7M10.5 7.5a1.8 1.8 0 1 0-.5-3.5M11.5 9.4c1.3.4 2 1.6 2 3.6",
  "dead-letters": "M2.5 4h11v8.5h-11zM2.5 4.5L8 9l5.5-4.5M5.8 14.5l4.4-4M10.2 14.5l-4.4-4",
  pipelines: "M2 4h4v3.5h4V12h4M4 2v4M12 10v4",
  connections: "M6 10L10 6M5 7.5L3.3 9.2a2.5 2.5 0 0 0 3.5 3.5L8.5 11M7.5 5l1.7-1.7a2.5 2.5 0 0 1 3.5 3.5L11 8.5",
  users: "M8 7.5a2.7 2.7 0 1 0 0-5.4a2.7 2.7 0 0 0 0 5.4M2.8 14c0-3 2.2-4.5 5.2-4.5s5.2 1.5 5.2 4.5",
  tokens: "M10.5 9a3.5 3.5 0 1 0-3.3-2.3L2.5 11.4v2.1h2.4v-1.7h1.8v-1.7h1.4l.6-.6c.5.3 1.2.5 1.8.5M11 5.4v.2",
  audit: "M4 2h8v12H4zM6 5h4M6 7.7h4M6 10.4h2.5",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  close: "M4 4l8 8M12 4l-8 8",
  copy: "M5.5 5.5h7v8h-7zM3.5 10.5v-8h7",
  sort: "M5 6l3-3 3 3M5 10l3 3 3-3",
  plus: "M8 3v10M3 8h10",
  play: "M5 3.5v9l7.5-4.5z",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  chevron: "M6 4l4 4-4 4",
}

export function Icon({ name }) {
  return html`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false"><path d=${ICONS[name]} /></svg>`
}
