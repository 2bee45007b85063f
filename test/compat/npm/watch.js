'use strict'
// Watches with previous values, across reconnects.
const assert = require('node:assert/strict')
const { failure, queue, run, say, told } = require('./program')

// seen collects the events of a watcher as short texts.
function seen (watcher) {
  const q = queue()
  const text = (what, kv, before) => [what, kv.key.toString(), kv.value.toString(), kv.version, before ? before.value.toString() : '-'].join(' ')
  watcher.on('put', (kv, before) => q.push(text('put', kv, before)))
  watcher.on('delete', (kv, before) => q.push(text('delete', kv, before)))
  return q
}

run(async client => {
  await client.put('w/old').value('0')
  const prefix = await client.watch().prefix('w/').withPreviousKV().create()
  const all = seen(prefix)
  const one = seen(await client.watch().key('w/a').create())
  const puts = seen(await client.watch().prefix('w/').only('put').create())
  const past = seen(await client.watch().key('w/old').startRevision('2').create())
  say('past', await past.next())

  await client.put('w/a').value('1')
  await client.put('w/a').value('2')
  await client.delete().key('w/a')
  await client.put('elsewhere').value('x')
  await client.delete().key('w/old')
  await client.if('none', 'Version', '==', 0).then(client.put('w/t1').value('t'), client.put('w/t2').value('t')).commit()
  for (let i = 0; i < 6; i++) say('all', await all.next())
  for (let i = 0; i < 3; i++) say('one', await one.next())
  for (let i = 0; i < 2; i++) say('puts', await puts.next())
  say('past', await past.next())

  // In a namespace the names are short.
  const inside = seen(await client.namespace('w/').watch().prefix('in').create())
  await client.put('w/in').value('x')
  say('inside', await inside.next())
  say('all', await all.next())

  // A watch reports its end, and the others continue.
  const short = await client.watch().key('w/short').create()
  await short.cancel()
  await client.put('w/short').value('x')
  say('all', await all.next())

  // The server dies; the test sends its writes meanwhile.
  let lost = 0
  prefix.on('disconnected', () => lost++)
  say('break')
  for (let line = await told(); line !== 'mended'; line = await told()) say(line, 'all', await all.next())
  assert(lost > 0)
  await client.put('w/after').value('x')
  say('all', await all.next())
  for (const q of [all, one, past]) assert.equal(q.length, 0)

  // A compacted revision.
  await client.kv.compact({ revision: 5 })
  say('compact', 'done')
  say('too old', (await failure(client.watch().prefix('w/').startRevision('2').create().then(w =>
    new Promise((resolve, reject) => { w.on('error', reject) })))).message)
})
