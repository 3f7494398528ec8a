// What the tables of the console are made of: answers of the server in, texts of cells out. Nothing here knows a document.
//
// A column is a field of the list's rows, `counters.messages_matched` for one inside another, and is headed by the
// field's own name: counters are called here as in metrics and on the command line. A rate has a title of its own; it
// is what the field grew by between two answers, per second.

const column = (kind) => (field, title = field.split(".").at(-1)) => ({ field, kind, title })

const text = column("text")
const count = column("count")
const bytes = column("bytes")
const time = column("time")
const rate = column("rate")
const byteRate = column("byteRate")

const within = (part, columns) => columns.map((one) => ({ ...one, field: `${part}.${one.field}` }))

const WRITTEN = within("counters", [
  count("messages_published"),
  count("messages_confirmed"),
  count("messages_duplicate"),
  count("messages_refused"),
  bytes("bytes_published"),
  count("chunks_written"),
  bytes("bytes_written"),
  count("write_errors"),
])
const SCANNED = [
  count("chunks_examined"),
  count("chunks_skipped"),
  count("chunks_skipped_by_index"),
  count("chunks_skipped_by_lookup"),
  count("chunks_skipped_by_columns"),
  count("chunks_without_match"),
  count("chunks_corrupt"),
  bytes("bytes_read"),
  bytes("bytes_skipped"),
  bytes("column_bytes_read"),
  count("messages_evaluated"),
  count("messages_decided_by_index"),
  count("messages_decided_by_lookup"),
  count("messages_decided_by_columns"),
  count("messages_matched"),
  count("messages_unknown"),
  count("messages_error"),
  count("messages_malformed"),
  count("cpu_ns"),
]
const DELIVERED = [count("delivered_messages"), count("delivered_chunks"), bytes("delivered_bytes")]
const READING = within("reading", [...SCANNED, ...DELIVERED, count("messages_lost")])

const GROUP = within("counters", [
  count("delivered"),
  bytes("delivered_bytes"),
  count("filtered"),
  count("lost"),
  count("completed"),
  count("expired"),
  count("dead_lettered"),
])

const COPIES = within("counters", [
  count("decided"),
  count("delivered"),
  bytes("delivered_bytes"),
  count("completed"),
  count("released"),
  count("dead_lettered"),
  count("deferred"),
  count("expired"),
  count("outlived"),
])

const SAVED = "chunks_skipped and bytes_skipped were never read; chunks_without_match are false positives of stage 1"

/** The tables of each view; `key` are the fields by which a row is known again in the next answer. */
export const VIEWS = {
  overview: [
    {
      caption: "Server",
      list: "overview",
      facts: [
        text("product"),
        text("version"),
        text("serves_as"),
        text("node"),
        text("ready"),
        text("ports"),
        text("user"),
        text("tags"),
      ],
    },
    {
      caption: "Totals of what you may see",
      totals: [
        { list: "streams", how: "rows", ...count("name", "streams") },
        { list: "streams", how: "sum", ...count("messages") },
        { list: "streams", how: "sum", ...bytes("size_bytes") },
        { list: "streams", how: "rate", ...rate("next_offset", "offsets/s") },
        { list: "streams", how: "rate", ...byteRate("counters.bytes_written", "bytes_written/s") },
        { list: "streams", how: "sum", ...count("publishers") },
        { list: "consumers", how: "rows", ...count("tag", "consumers") },
        { list: "consumers", how: "largest", ...count("lag", "largest lag") },
        { list: "consumers", how: "largest", ...count("filtered_lag", "largest filtered_lag") },
        { list: "consumers", how: "sum", ...count("lost") },
        { list: "connections", how: "rows", ...count("name", "connections") },
      ],
    },
    {
      caption: "What consumers read since the server started",
      note: SAVED,
      totals: READING.map((one) => ({ list: "streams", how: "sum", ...one })),
    },
  ],
  streams: [
    {
      caption: "Streams",
      list: "streams",
      key: ["name"],
      columns: [
        text("name"),
        count("messages"),
        count("first_offset"),
        count("next_offset"),
        bytes("size_bytes"),
        rate("next_offset", "offsets/s"),
        byteRate("counters.bytes_written", "bytes_written/s"),
        byteRate("reading.delivered_bytes", "delivered_bytes/s"),
        count("publishers"),
        count("consumers"),
        text("arguments"),
        { ...text("error"), isRare: true },
      ],
    },
    { caption: "Written since the server started", list: "streams", key: ["name"], columns: [text("name"), ...WRITTEN] },
    {
      caption: "Read since the server started, by consumers that are gone, too",
      note: SAVED,
      list: "streams",
      key: ["name"],
      columns: [text("name"), ...READING],
    },
  ],
  topics: [
    {
      caption: "Topics",
      list: "topics",
      key: ["name"],
      columns: [
        text("name"),
        count("subscriptions"),
        count("sql_filters"),
        count("correlation_filters"),
        count("undecided"),
        rate("counters.messages_decided", "messages_decided/s"),
        count("active"),
        count("locked"),
        count("waiting"),
        count("deferred"),
        count("dead_lettered"),
        count("pins"),
        count("next_offset"),
        { ...text("error"), isRare: true },
      ],
    },
    {
      caption: "Subscriptions and their copies",
      note: "pins is the first offset that a subscription needs; retention keeps held_back_bytes for it",
      list: "subscriptions",
      key: ["topic", "name"],
      columns: [
        text("topic"),
        text("name"),
        count("rules"),
        count("active"),
        count("locked"),
        count("waiting"),
        count("deferred"),
        count("dead_lettered"),
        count("receivers"),
        rate("counters.delivered", "delivered/s"),
        rate("counters.completed", "completed/s"),
        count("pins"),
        bytes("held_back_bytes"),
        text("forward_to"),
        text("fall_through"),
        text("settings.status"),
        { ...text("error"), isRare: true },
      ],
    },
    {
      caption: "What became of copies since the server opened their topics",
      list: "subscriptions",
      key: ["topic", "name"],
      columns: [text("topic"), text("name"), ...COPIES],
    },
    {
      caption: "Rules in force",
      note:
        "the first 500; headgate rule ls shows all of a subscription; messages are counted since the server opened " +
        "the topic; one that a filter or an action fails for gives no copy by that rule",
      list: "rules",
      key: ["topic", "subscription", "name"],
      columns: [
        text("topic"),
        text("subscription"),
        text("name"),
        text("filter"),
        text("action"),
        count("number"),
        count("from_offset"),
        count("matched"),
        count("errors"),
        count("failed_actions"),
        count("last_failure_offset"),
        text("last_failure_reason"),
        { ...text("error"), isRare: true },
      ],
    },
  ],
  groups: [
    {
      caption: "Consumer groups",
      note: "sums over the queues of a group; headgate rocketmq group show has its place in each",
      list: "rocketmq/groups",
      key: ["name"],
      columns: [
        text("name"),
        count("members"),
        count("queues"),
        count("lag"),
        count("claimed"),
        count("available"),
        count("moving"),
        rate("counters.delivered", "delivered/s"),
        rate("counters.completed", "completed/s"),
        rate("reading.cpu_ns", "cpu_ns/s"),
        text("fifo"),
        count("max_attempts"),
        text("enabled"),
        text("broadcast"),
      ],
    },
    {
      caption: "What became of their messages since the server opened their queues",
      list: "rocketmq/groups",
      key: ["name"],
      columns: [text("name"), ...GROUP],
    },
    {
      caption: "What reading for them cost",
      note: SAVED,
      list: "rocketmq/groups",
      key: ["name"],
      columns: [text("name"), ...within("reading", SCANNED)],
    },
  ],
  consumers: [
    {
      caption: "Consumers and the filters in force",
      list: "consumers",
      key: ["connection", "stream", "tag"],
      columns: [
        text("stream"),
        text("name"),
        text("tag"),
        text("filter_values"),
        text("match_unfiltered"),
        text("filter"),
        text("dialect"),
        count("lag"),
        count("filtered_lag"),
        count("lost"),
        count("next_offset"),
        rate("counters.messages_matched", "messages_matched/s"),
        byteRate("delivered_bytes", "delivered_bytes/s"),
        text("active"),
        count("credit"),
        text("user"),
        text("protocol"),
        text("connection"),
      ],
    },
    {
      caption: "What each stage did for them",
      note: SAVED,
      list: "consumers",
      key: ["connection", "stream", "tag"],
      columns: [text("stream"), text("name"), text("tag"), ...within("counters", SCANNED), ...DELIVERED],
    },
  ],
  offsets: [
    {
      caption: "Stored offsets",
      list: "offsets",
      key: ["stream", "name"],
      columns: [
        text("stream"),
        text("name"),
        count("stored_offset"),
        count("next_offset"),
        count("lag"),
        { ...text("error"), isRare: true },
      ],
    },
  ],
  connections: [
    {
      caption: "Connections",
      list: "connections",
      key: ["name"],
      columns: [
        text("name"),
        text("user"),
        text("state"),
        text("protocol"),
        text("listener"),
        text("encrypted"),
        text("peer_host"),
        text("peer_port"),
        text("client"),
        time("opened_ms"),
        bytes("bytes_received"),
        bytes("bytes_sent"),
        byteRate("bytes_received", "bytes_received/s"),
        byteRate("bytes_sent", "bytes_sent/s"),
      ],
    },
  ],
  users: [
    {
      caption: "Users",
      list: "users",
      key: ["name"],
      columns: [
        text("name"),
        text("tags"),
        text("configure"),
        text("write"),
        text("read"),
        text("has_password"),
      ],
    },
  ],
}

/** More rows than anybody reads would only make the browser slow. */
export const MOST_ROWS = 500

/** The lists that a view is made of. */
export function listsOf(view) {
  return [...new Set(VIEWS[view].flatMap(namesOf))]
}

const namesOf = (table) => (table.totals ?? [table]).map((part) => part.list)

// answers

/** What an answer says: `rows`, or a sentence: `login` if another is needed, `refused` for this user, `trouble`. */
export function understood(status, body) {
  let given = null
  try {
    given = JSON.parse(body)
  } catch {
    // Said below: only the server itself answers in JSON.
  }
  const reason = given && typeof given.error === "string" ? given.error : "it does not say why"
  if (status === 200 && given !== null) return { rows: Array.isArray(given) ? given : [given] }
  if (status === 401) {
    const patience = "After many wrong logins from one address the server looks at none for a minute."
    return { login: `The server refused this user with this password (${reason}). ${patience}` }
  }
  if (status === 403) return { refused: `You may not read this list: ${reason}.` }
  return { trouble: `The server answered ${status} (${reason}).` }
}

/** A list after one more answer with rows; `at` in milliseconds. The answer before it is kept for rates. */
export function taken(list, rows, at) {
  return { rows, at, before: list && list.rows ? { rows: list.rows, at: list.at } : null }
}

// tables

/** The tables of a view, from a map of lists by their names; of rows that hold all the words. */
export function tablesOf(view, lists, words = "") {
  return VIEWS[view].map((table) => {
    const missing = namesOf(table).filter((name) => !lists.get(name)?.rows)
    if (missing.length) {
      return { caption: table.caption, note: lists.get(missing[0])?.refused ?? "Not answered yet.", columns: [], rows: [] }
    }
    if (table.totals) return facts(table, table.totals.map((part) => [part, total(part, lists.get(part.list))]))
    const list = lists.get(table.list)
    if (table.facts) return facts(table, table.facts.map((one) => [one, valueAt(list.rows[0], one.field)]))
    return grid(table, list, words)
  })
}

/** Rows in the order of a column's values; numbers before texts, nothing last. */
export function sorted(rows, place, isDescending) {
  const rank = (value) => (value === null || value === "" ? 2 : typeof value === "number" ? 0 : 1)
  return [...rows].sort((one, other) => {
    const [a, b] = [one[place].value, other[place].value]
    if (rank(a) !== rank(b)) return rank(a) - rank(b)
    const order = a < b ? -1 : a > b ? 1 : 0
    return isDescending ? -order : order
  })
}

function grid(table, list, words) {
  const before = rowsBefore(list, table.key)
  const isShown = (one) => !one.isRare || list.rows.some((row) => valueAt(row, one.field) !== null)
  const columns = table.columns.filter(isShown)
  const rows = list.rows.map((row) => columns.map((one) => cell(one, valueOf(one, row, before, table.key))))
  return { caption: table.caption, note: table.note ?? "", columns: columns.map(headOf), rows: matching(rows, words) }
}

function facts(table, values) {
  const columns = [{ title: "name", isNumber: false }, { title: "value", isNumber: false }]
  const rows = values.map(([one, value]) => [{ text: one.title, value: one.title }, cell(one, value)])
  return { caption: table.caption, note: table.note ?? "", columns, rows, isFixed: true }
}

/** The key of a list's rows. */
function keyed(name) {
  const tables = Object.values(VIEWS).flat()
  return tables.find((table) => table.list === name && table.key).key
}

function total({ list: name, how, kind, field }, list) {
  if (how === "rows") return list.rows.length
  const key = keyed(name)
  const before = rowsBefore(list, key)
  const known = list.rows.map((row) => valueOf({ kind, field }, row, before, key))
  const values = known.filter((value) => typeof value === "number")
  if (how === "largest") return values.reduce((most, value) => Math.max(most, value), 0)
  // No rate of any row is known before the second answer; that is not the rate 0.
  if (how === "rate" && !values.length && list.rows.length) return null
  return values.reduce((sum, value) => sum + value, 0)
}

function rowsBefore(list, key) {
  if (!list.before || list.at <= list.before.at) return null
  const rows = new Map(list.before.rows.map((row) => [keyOf(row, key), row]))
  return { rows, seconds: (list.at - list.before.at) / 1000 }
}

const keyOf = (row, key) => JSON.stringify(key.map((field) => valueAt(row, field)))

function valueOf({ kind, field }, row, before, key) {
  const now = valueAt(row, field)
  if (kind !== "rate" && kind !== "byteRate") return now
  const then = before && valueAt(before.rows.get(keyOf(row, key)), field)
  // What shrank was counted anew: the server was started again, or another has the name now.
  return typeof now === "number" && typeof then === "number" && now >= then ? (now - then) / before.seconds : null
}

/** The value of a field; null where there is none. */
function valueAt(row, field) {
  let value = row
  for (const part of field.split(".")) {
    value = value !== null && typeof value === "object" && Object.hasOwn(value, part) ? value[part] : null
  }
  return value
}

function matching(rows, words) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean)
  if (!wanted.length) return rows
  return rows.filter((row) => {
    const whole = row.map((one) => one.text).join("\n").toLowerCase()
    return wanted.every((word) => whole.includes(word))
  })
}

// cells

const NUMBERS = new Set(["count", "bytes", "rate", "byteRate"])

const headOf = ({ title, kind }) => ({ title, isNumber: NUMBERS.has(kind) })

function cell({ kind }, value) {
  const shownText = shown(kind, value)
  return { text: shownText, value: typeof value === "number" ? value : value === null ? null : shownText }
}

/** A value as it is read. */
export function shown(kind, value) {
  if (value === null || value === undefined) return ""
  if (typeof value !== "number") return plain(value)
  if (kind === "count") return value.toLocaleString("en-US")
  if (kind === "bytes") return shownSize(value)
  if (kind === "rate") return shownRate(value)
  if (kind === "byteRate") return `${shownSize(Math.round(value))}/s`
  if (kind === "time") return shownTime(value)
  return String(value)
}

function plain(value) {
  if (typeof value === "boolean") return value ? "yes" : "no"
  if (Array.isArray(value)) return value.map(plain).join(", ")
  if (value !== null && typeof value === "object") {
    return Object.entries(value).map(([name, one]) => `${name}: ${plain(one)}`).join(", ")
  }
  return String(value)
}

function shownSize(size) {
  if (size < 1000) return `${size} B`
  let value = size
  for (const unit of ["kB", "MB", "GB"]) {
    value /= 1000
    if (value < 999.95) return `${value.toFixed(1)} ${unit}`
  }
  return `${(value / 1000).toFixed(1)} TB`
}

function shownRate(perSecond) {
  const digits = perSecond > 0 && perSecond < 10 ? 1 : 0
  return perSecond.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits })
}

function shownTime(milliseconds) {
  const moment = new Date(milliseconds)
  return Number.isNaN(moment.getTime()) ? `${milliseconds} ms` : moment.toISOString()
}
