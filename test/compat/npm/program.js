'use strict'
// The programs share a client of the endpoints in ENDPOINTS (host:port,
// comma separated), lines for the transcript on standard output, and lines from
// the test on standard input.
const readline = require('node:readline')
const { Etcd3 } = require('etcd3')

const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]()

// say prints a line that does not depend on the server.
function say (...words) {
  console.log(words.map(w => typeof w === 'string' ? w : JSON.stringify(w)).join(' '))
}

// told waits for the next line of the test.
async function told () { return (await lines.next()).value }

// failure returns the error of a promise.
async function failure (promise) {
  try { await promise } catch (e) { return e }
  throw new Error('it did not fail')
}

// queue collects emitted values, to be awaited one by one.
function queue () {
  const items = []
  let wake
  return {
    push (item) { items.push(item); wake?.() },
    async next () {
      while (items.length === 0) await new Promise(resolve => { wake = resolve })
      return items.shift()
    },
    get length () { return items.length }
  }
}

// run calls a program with a client, and ends the process when it is done.
function run (program) {
  const client = new Etcd3({ hosts: process.env.ENDPOINTS.split(',').map(e => 'http://' + e) })
  program(client).then(() => { say('done'); client.close(); process.exit(0) }, e => { console.error(e); process.exit(1) })
}

module.exports = { failure, queue, run, say, told }
