'use strict'
// Leases, locks and elections.
const assert = require('node:assert/strict')
const { once } = require('node:events')
const { failure, queue, run, say, told } = require('./program')

run(async client => {
  // A lease holds its keys, and is kept alive.
  const lease = client.lease(60)
  await lease.put('l/a').value('1')
  await client.put('l/b').value('2').lease(lease.grant())
  const alive = await lease.keepaliveOnce()
  say('alive', alive.TTL)
  const held = await client.get('l/a').exec()
  assert.equal(held.kvs[0].lease, await lease.grant())
  const ttl = await client.leaseClient.leaseTimeToLive({ ID: await lease.grant(), keys: true })
  say('time to live', ttl.grantedTTL, ttl.keys.map(String).sort())
  say('leases', (await client.leaseClient.leaseLeases()).leases.length)
  await lease.revoke()
  say('revoked', lease.revoked(), await client.getAll().prefix('l/').count())
  say('gone', (await failure(client.put('l/c').value('x').lease(await lease.grant()).exec())).message)

  // A short lease, kept alive automatically while its server dies.
  const short = client.lease(20)
  await short.put('l/short').value('x')
  const beats = queue()
  short.on('keepaliveSucceeded', () => beats.push(1))
  short.on('lost', e => { console.error('lost', e); process.exit(1) })

  // A lock excludes others.
  const lock = await client.lock('jobs').ttl(30).acquire()
  say('locked', (await failure(client.lock('jobs').acquire())).constructor.name)
  await lock.release()
  say('result', await client.lock('jobs').do(async () => 42))

  // An election.
  const election = client.election('chief', 30)
  const observer = await election.observe()
  const leaders = queue()
  observer.on('change', leader => leaders.push(leader ?? '-'))
  const alice = election.campaign('alice')
  await once(alice, 'elected')
  say('leader', await leaders.next(), await election.leader())
  const bob = client.election('chief', 30).campaign('bob')
  const elected = once(bob, 'elected')
  await bob.getCampaignKey()
  await alice.proclaim('alicia')
  say('leader', await leaders.next())
  await alice.resign()
  await elected
  for (let l = '-'; ;) { l = await leaders.next(); if (l === 'bob') break; assert.equal(l, '-') }
  say('leader', await election.leader())

  say('break')
  for (let line = await told(); line !== 'mended'; line = await told()) say(line)
  while (beats.length > 0) await beats.next()
  await beats.next() // a new one
  say('kept', await client.get('l/short').string(), await election.leader())
  await bob.resign()
  await observer.cancel()
  await short.revoke()
})
