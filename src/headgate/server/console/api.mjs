// Asking the server: sessions, requests, lists that are asked again, and live streams of events.
//
//     login(user, password), logout(), useSession()
//     await ask("streams/orders", { method: "DELETE", query: { force: "true" } })       an answer, or Problem
//     const { data, problem, at, reload } = usePolled("streams")                         again 5 s after each answer
//     const { data, problem, isLoading } = useAsked("streams/orders/segments")           once
//     for await (const { event, data } of events("streams/orders/follow", query, signal))

import { useEffect, useMemo, useRef, useState } from "./vendor/hooks.mjs"

const INTERVAL_MS = 5000
const LIMIT_MS = 30_000

/** What the server refused, as it said it: `status`, `detail`; for a refused filter also `text` and `span`. */
export class Problem extends Error {
  constructor(status, told) {
    super(told.detail ?? told.error ?? `The server answered ${status}.`)
    this.status = status
    this.title = told.title
    this.text = told.text
    this.span = told.span
  }
}

// sessions

/** undefined while it is not known, null without one, else the server's answer: `{user, tags, …}`. */
let session
/** The sentence above the login. */
let reason = ""
const listeners = new Set()

function told(next, sentence = "") {
  session = next
  reason = sentence
  listeners.forEach((listen) => listen())
}

/** The session and why the last one ended, again with each change of it. */
export function useSession() {
  const [, turn] = useState(0)
  useEffect(() => {
    const listen = () => turn((count) => count + 1)
    listeners.add(listen)
    if (session === undefined) resume()
    return () => listeners.delete(listen)
  }, [])
  return { session, reason }
}

/** Whether the user of this session has a tag, such as `administrator`. */
export const hasTag = (tag) => Boolean(session?.tags?.includes(tag))

/** What `--server` and clients of the stream protocol are given for this server; null where it does not speak that. */
export function streamAddress() {
  const { stream_port: port, stream_tls_port: tlsPort } = session ?? {}
  const host = location.hostname || "localhost"
  if (tlsPort && (location.protocol.startsWith("https") || !port)) return `headgate-stream+tls://${host}:${tlsPort}`
  return port ? `${host}:${port}` : null
}

async function resume() {
  try {
    told(await ask("session"))
  } catch (problem) {
    told(null, problem.status === 401 ? "" : problem.message)
  }
}

/** Begin a session. Raises Problem. */
export async function login(user, password) {
  told(await ask("session", { method: "POST", body: { user, password } }))
}

export async function logout() {
  await ask("session", { method: "DELETE" }).catch(() => {})
  told(null)
}

// requests

/**
 * The answer to a request under `/api`, decoded. `path` is encoded already where it holds names: see `named`.
 * Raises Problem; AbortError if `signal` gave it up.
 */
export async function ask(path, { method = "GET", query, body, signal } = {}) {
  const answer = await sent(path, { method, query, body, signal: limited(signal) })
  const text = await answer.text()
  if (answer.ok) return text ? JSON.parse(text) : null
  throw problemOf(answer.status, text, path)
}

/** A path with names in it: named`topics/${topic}/subscriptions/${name}`. */
export function named(parts, ...names) {
  return parts.reduce((path, part, at) => path + encodeURIComponent(names[at - 1]) + part)
}

async function sent(path, { method, query, body, signal }) {
  const search = query ? searched(query) : ""
  try {
    return await fetch(`api/${path}${search && `?${search}`}`, {
      method,
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin",
      cache: "no-store",
      redirect: "error",
      referrerPolicy: "no-referrer",
      signal,
    })
  } catch (error) {
    if (error.name === "AbortError") throw error
    throw new Problem(0, { detail: "The server does not answer." })
  }
}

function searched(query) {
  const search = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== "") search.append(name, each)
    }
  }
  return search.toString()
}

function problemOf(status, text, path) {
  let said = null
  try {
    said = JSON.parse(text)
  } catch {
    // Said by a proxy, not by the server: its page is not shown.
  }
  const problem = new Problem(status, said !== null && typeof said === "object" ? said : {})
  if (status === 401 && session && path !== "session") told(null, "Your session has ended. Log in again.")
  return problem
}

function limited(signal) {
  const limit = AbortSignal.timeout(LIMIT_MS)
  return signal ? AbortSignal.any([signal, limit]) : limit
}

// answers in pages

/** An answer that is asked again `everyMs` after the last one, not while the page is hidden. Null as path asks nothing. */
export function usePolled(path, { query, everyMs = INTERVAL_MS } = {}) {
  return useAnswer(path, query, everyMs)
}

/** An answer that is asked once, and again with `reload()`. */
export function useAsked(path, { query } = {}) {
  return useAnswer(path, query, null)
}

function useAnswer(path, query, everyMs) {
  const [state, setState] = useState({ key: null, data: null, problem: null, at: null })
  const key = path === null ? null : `${path}?${query ? searched(query) : ""}`
  const again = useRef(() => {})
  useEffect(() => {
    if (key === null) return undefined
    const given = new AbortController()
    let timer = null
    let isAsking = false
    const turn = async () => {
      clearTimeout(timer)
      if (isAsking) return
      isAsking = true
      try {
        const data = await ask(path, { query, signal: given.signal })
        setState({ key, data, problem: null, at: Date.now() })
      } catch (problem) {
        if (given.signal.aborted) return
        // What is shown stays, with the problem beside it.
        setState((before) => ({ key, data: before.key === key ? before.data : null, problem, at: before.at }))
      } finally {
        isAsking = false
        if (everyMs !== null && !given.signal.aborted && !document.hidden) timer = setTimeout(turn, everyMs)
      }
    }
    const look = () => (document.hidden ? clearTimeout(timer) : turn())
    again.current = turn
    turn()
    if (everyMs !== null) document.addEventListener("visibilitychange", look)
    return () => {
      given.abort()
      clearTimeout(timer)
      document.removeEventListener("visibilitychange", look)
    }
  }, [key, everyMs])
  const reload = useMemo(() => () => again.current(), [])
  const isCurrent = state.key === key
  return {
    data: isCurrent ? state.data : null,
    problem: isCurrent ? state.problem : null,
    at: isCurrent ? state.at : null,
    isLoading: key !== null && (!isCurrent || (state.data === null && state.problem === null)),
    reload,
  }
}

/**
 * Server-sent events until the server ends them or `signal` gives them up; first `open`, when the server has begun to
 * look. Raises Problem.
 */
export async function* events(path, query, signal) {
  const answer = await sent(path, { method: "GET", query, signal })
  if (!answer.ok) throw problemOf(answer.status, await answer.text(), path)
  yield { event: "open", data: null }
  let rest = ""
  for await (const part of answer.body.pipeThrough(new TextDecoderStream())) {
    const blocks = (rest + part).split(/\r?\n\r?\n/)
    rest = blocks.pop()
    for (const block of blocks) {
      const one = { event: "message", data: [] }
      for (const line of block.split(/\r?\n/)) {
        const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(line)
        if (field === "event") one.event = value
        else if (field === "data") one.data.push(value)
      }
      if (one.data.length) yield { event: one.event, data: JSON.parse(one.data.join("\n")) }
    }
  }
}
