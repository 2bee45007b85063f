'use strict'
// Reads, writes, transactions and namespaces.
const assert = require('node:assert/strict')
const { failure, run, say } = require('./program')

run(async client => {
  // One key.
  assert.equal(await client.get('a').string(), null)
  await client.put('a').value('1')
  assert.equal(await client.get('a').string(), '1')
  assert.equal(await client.get('a').number(), 1)
  assert.equal((await client.put('a').value('2').getPrevious()).value.toString(), '1')
  await client.put('json').value(JSON.stringify({ x: [1, null, 'ü'] }))
  assert.deepEqual(await client.get('json').json(), { x: [1, null, 'ü'] })
  const bytes = Buffer.from([0, 255, 10, 13, 128])
  await client.put(bytes).value(bytes)
  assert.deepEqual(await client.get(bytes).buffer(), bytes)
  assert.equal(await client.get('a').exists(), true)
  await client.put('a').touch()
  const r = await client.get('a').exec()
  say('a', r.header.revision, r.count, r.more, r.kvs[0].create_revision, r.kvs[0].mod_revision, r.kvs[0].version, r.kvs[0].lease)
  say('at 2', await client.get('a').revision(2).string())

  // Many keys.
  for (let i = 0; i < 20; i++) await client.put(`list/${String(i).padStart(2, '0')}`).value(String(i * 7 % 20))
  const list = () => client.getAll().prefix('list/')
  say('all', await list().strings())
  say('keys', await list().keys())
  say('count', await list().count(), await client.getAll().count(), await client.getAll().prefix('none').count())
  say('by value', await list().sort('Value', 'Descend').limit(3).strings())
  say('by revision', await list().sort('Mod', 'Descend').limit(2).keys())
  say('numbers', await list().limit(2).numbers())
  const page = await list().limit(5).exec()
  say('page', page.more, page.count, page.kvs.length)
  say('range', await client.getAll().inRange({ start: 'list/03', end: 'list/06' }).keys())
  say('changed since', await list().minModRevision(20).keys())
  say('made before', await list().maxCreateRevision(10).keys())
  say('earlier', await list().revision(12).keys())
  assert.deepEqual(await list().serializable(true).limit(1).exec().then(r => r.kvs.length <= 1), true)

  // Errors.
  const future = await failure(client.get('a').revision(1000))
  say('future', future.constructor.name, future.message)
  say('empty', (await failure(client.put('').value('x'))).message)

  // Delete.
  say('deleted', (await client.delete().key('json')).deleted)
  say('previous', (await client.delete().inRange({ start: 'list/00', end: 'list/02' }).getPrevious()).map(kv => kv.key.toString()))
  say('prefix', (await client.delete().prefix('list/1')).deleted)
  say('left', await list().keys())

  // Transactions.
  const swap = (from, to) => client
    .if('a', 'Value', '==', from).and('a', 'Version', '>', 0).and('b', 'Create', '==', 0)
    .then(client.put('a').value(to), client.get('a'), client.delete().key('list/02'))
    .else(client.get('a'), client.getAll().prefix('list/').limit(2))
    .commit()
  for (const from of ['2', '2', '']) {
    const t = await swap(from, '3')
    say('transaction', t.succeeded, t.header.revision, t.responses.map(r => {
      const range = r.response_range
      return range ? [r.response, range.count, range.kvs.map(kv => kv.key + '=' + kv.value)] : [r.response]
    }))
  }
  await client.stm().transact(tx => tx.get('a').number().then(n => tx.put('a').value(n + 1)))
  await Promise.all(Array.from({ length: 5 }, () =>
    client.stm({ retries: 50 }).transact(tx => tx.get('a').number().then(n => tx.put('a').value(n + 1)))))
  say('sum', await client.get('a').number())

  // Namespaces.
  const ns = client.namespace('ns/')
  await ns.put('x').value('1')
  await ns.namespace('deep/').put('y').value('2')
  say('inside', await ns.getAll().strings(), await ns.get('x').string(), await ns.get('a').string())
  say('outside', await client.getAll().prefix('ns/').keys())
  await ns.delete().all()
  say('a is there', await client.get('a').exists(), await client.getAll().prefix('ns/').count())
})
