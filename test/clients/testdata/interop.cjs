// gRPC's interop cases with @grpc/grpc-js: node interop.cjs ADDRESS DESCRIPTORS
// DESCRIPTORS is a google.protobuf.FileDescriptorSet of grpc.testing.TestService. For each case a
// line is printed: ok NAME, or failed NAME: REASON.
'use strict';
const assert = require('node:assert');
const fs = require('node:fs');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const [address, descriptors] = process.argv.slice(2);
const { grpc: { testing } } = grpc.loadPackageDefinition(
  loader.loadFileDescriptorSetFromBuffer(fs.readFileSync(descriptors), { keepCase: true }));
const credentials = grpc.credentials.createInsecure();

const payload = (n) => ({ body: Buffer.alloc(n) });
const sizes = (...n) => n.map((size) => ({ size }));
const bytes = (m) => m.payload.body.length;

// call makes a unary call, and resolves to its error, answer, header and trailer.
function call(start) {
  return new Promise((resolve) => {
    const all = {};
    const c = start((error, answer) => { all.error = error; all.answer = answer; });
    c.on('metadata', (m) => { all.header = m; });
    c.on('status', (s) => { all.trailer = s.metadata; all.status = s; resolve(all); });
  });
}

// ended resolves to all messages of a stream, its header and its status. each is called with
// each message.
function ended(stream, each = () => {}) {
  return new Promise((resolve) => {
    const all = { messages: [] };
    stream.on('data', (m) => { all.messages.push(m); each(m); });
    stream.on('metadata', (m) => { all.header = m; });
    stream.on('error', () => {}); // the status has it
    stream.on('status', (s) => { all.status = s; resolve(all); });
  });
}

async function expectStatus(client, code, message) {
  const want = { code, message };
  const unary = await call((done) => client.UnaryCall({ response_status: want }, done));
  assert.deepStrictEqual({ code: unary.status.code, message: unary.status.details }, want);
  const stream = client.FullDuplexCall();
  const end = ended(stream);
  stream.write({ response_status: want });
  stream.end();
  const { status } = await end;
  assert.deepStrictEqual({ code: status.code, message: status.details }, want);
}

const cases = {
  async empty_unary(client) {
    const { error, answer } = await call((done) => client.EmptyCall({}, done));
    assert.ifError(error);
    assert.deepStrictEqual(answer, {});
  },
  async large_unary(client) {
    for (const [request, response] of [[271828, 314159], [4 << 20, 3 << 20]]) {
      const { error, answer } = await call((done) => client.UnaryCall({ response_size: response, payload: payload(request) }, done));
      assert.ifError(error);
      assert.strictEqual(bytes(answer), response);
    }
  },
  async client_compressed_unary(client) {
    const gzip = new testing.TestService(address, credentials, { 'grpc.default_compression_algorithm': 2 });
    const { error, answer } = await call((done) => gzip.UnaryCall({ response_size: 314159, payload: payload(271828) }, done));
    assert.ifError(error);
    assert.strictEqual(bytes(answer), 314159);
    gzip.close();
  },
  async client_streaming(client) {
    const { error, answer } = await call((done) => {
      const c = client.StreamingInputCall(done);
      for (const n of [27182, 8, 1828, 45904]) c.write({ payload: payload(n) });
      c.end();
      return c;
    });
    assert.ifError(error);
    assert.strictEqual(answer.aggregated_payload_size, 74922);
  },
  async server_streaming(client) {
    const want = [31415, 9, 2653, 58979, 700_000];
    const { messages, status } = await ended(client.StreamingOutputCall({ response_parameters: sizes(...want) }));
    assert.strictEqual(status.code, grpc.status.OK, status.details);
    assert.deepStrictEqual(messages.map(bytes), want);
  },
  async ping_pong(client) {
    const want = [31415, 9, 2653, 58979];
    const sent = [27182, 8, 1828, 45904];
    const stream = client.FullDuplexCall();
    let n = 0;
    const next = () => {
      if (n === want.length) stream.end();
      else stream.write({ response_parameters: sizes(want[n]), payload: payload(sent[n++]) });
    };
    const end = ended(stream, next);
    next();
    const { messages, status } = await end;
    assert.strictEqual(status.code, grpc.status.OK, status.details);
    assert.deepStrictEqual(messages.map(bytes), want);
  },
  async empty_stream(client) {
    const stream = client.FullDuplexCall();
    stream.end();
    const { messages, status } = await ended(stream);
    assert.strictEqual(status.code, grpc.status.OK, status.details);
    assert.strictEqual(messages.length, 0);
  },
  async cancel_after_begin(client) {
    const { status } = await call((done) => {
      const c = client.StreamingInputCall(done);
      setImmediate(() => c.cancel());
      return c;
    });
    assert.strictEqual(status.code, grpc.status.CANCELLED, status.details);
  },
  async cancel_after_first_response(client) {
    const stream = client.FullDuplexCall();
    const end = ended(stream, () => stream.cancel());
    stream.write({ response_parameters: sizes(31415), payload: payload(27182) });
    const { messages, status } = await end;
    assert.strictEqual(status.code, grpc.status.CANCELLED, status.details);
    assert.strictEqual(messages.length, 1);
  },
  async timeout_on_sleeping_server(client) {
    const stream = client.FullDuplexCall({ deadline: Date.now() + 100 });
    const end = ended(stream);
    stream.write({ payload: payload(27182) });
    const { status } = await end;
    assert.strictEqual(status.code, grpc.status.DEADLINE_EXCEEDED, status.details);
  },
  async custom_metadata(client) {
    const first = 'x-grpc-test-echo-initial';
    const last = 'x-grpc-test-echo-trailing-bin';
    const sent = new grpc.Metadata();
    sent.set(first, 'test_initial_metadata_value');
    sent.set(last, Buffer.from('ababab', 'hex'));
    const check = (header, trailer) => {
      assert.deepStrictEqual(header.get(first), ['test_initial_metadata_value']);
      assert.deepStrictEqual(trailer.get(last), [Buffer.from('ababab', 'hex')]);
    };
    const unary = await call((done) => client.UnaryCall({ response_size: 1, payload: payload(1) }, sent, done));
    assert.ifError(unary.error);
    check(unary.header, unary.trailer);
    const stream = client.FullDuplexCall(sent);
    const end = ended(stream);
    stream.write({ response_parameters: sizes(1) });
    stream.end();
    const { header, status } = await end;
    check(header, status.metadata);
  },
  status_code_and_message: (client) => expectStatus(client, grpc.status.UNKNOWN, 'test status message'),
  special_status_message: (client) => expectStatus(client, grpc.status.UNKNOWN, '\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n'),
  async unimplemented_method(client) {
    const { status } = await call((done) => client.UnimplementedCall({}, done));
    assert.strictEqual(status.code, grpc.status.UNIMPLEMENTED, status.details);
  },
  async unimplemented_service() {
    const client = new testing.UnimplementedService(address, credentials);
    const { status } = await call((done) => client.UnimplementedCall({}, done));
    assert.strictEqual(status.code, grpc.status.UNIMPLEMENTED, status.details);
    client.close();
  },
};

(async () => {
  const client = new testing.TestService(address, credentials);
  for (const [name, run] of Object.entries(cases)) {
    try {
      await run(client);
      console.log(`ok ${name}`);
    } catch (e) {
      console.log(`failed ${name}: ${String(e.message).replaceAll('\n', ' ')}`);
    }
  }
  client.close();
})();
