// One matmul on a gemmd server, from Node.js with no package at all: x [1, 3] times w [2, 3] transposed.
//
//   node main.mjs 127.0.0.1:8470
//
// gRPC is HTTP/2 with five bytes before a message. Fields go by their numbers, as proto/gemmd/v1 has them.
import { connect } from 'node:http2';

const varint = (n) => (n < 128 ? [n] : [(n & 127) | 128, ...varint(n >>> 7)]);
const bytes = (value) => Buffer.from(Array.isArray(value) ? value.flat() : value);
// {2: 'text', 5: 7, 4: {1: ..}, 3: [{..}, {..}]}: text, number, message, repeated.
const encode = (fields) => bytes(Object.entries(fields).flatMap(([number, value]) => (Array.isArray(value) ? value : [value])
  .flatMap((one) => {
    if (typeof one === 'number') return [...varint(number * 8), ...varint(one)];
    const data = typeof one === 'string' || Buffer.isBuffer(one) ? bytes(one) : encode(one);
    return [...varint(number * 8 + 2), ...varint(data.length), ...data];
  })));

function decode(data) { // {1: [..], 2: [..]}: every field as the list of its values
  const fields = {};
  let at = 0;
  const number = () => { let n = 0, shift = 1, byte; do { byte = data[at++]; n += (byte & 127) * shift; shift *= 128; } while (byte > 127); return n; };
  const take = (length) => data.subarray(at, at += length);
  while (at < data.length) {
    const tag = number();
    const value = [number, () => take(8), () => take(number()), , , () => take(4)][tag & 7]();
    (fields[tag >>> 3] ??= []).push(value);
  }
  return fields;
}

const http = connect(`http://${process.argv[2]}`);
const call = (method, fields) => new Promise((resolve, reject) => {
  const stream = http.request({ ':method': 'POST', ':path': `/gemmd.v1.${method}`, 'content-type': 'application/grpc', te: 'trailers' });
  const message = encode(fields), header = Buffer.alloc(5), received = [];
  const told = (headers) => { if (headers['grpc-status'] > 0) reject(new Error(decodeURIComponent(headers['grpc-message']))); };
  header.writeUInt32BE(message.length, 1);
  stream.on('response', told).on('trailers', told).on('error', reject).on('data', (data) => received.push(data));
  stream.on('end', () => resolve(decode(Buffer.concat(received).subarray(5))));
  stream.end(Buffer.concat([header, message]));
});

const F32 = 1;
const floats = (...values) => Buffer.from(Float32Array.from(values).buffer);
const session = (await call('SessionService/OpenSession', { 2: 'javascript' }))[1][0];
const tensor = async (...shape) => ({ 1: (await call('BufferService/CreateBuffer', { 1: session, 5: F32, 6: shape }))[1][0] });
const [x, w, y] = [await tensor(1, 3), await tensor(2, 3), await tensor(1, 2)];
const write = (dst, data) => ({ 6: { 1: dst, 2: data } });
const matmul = { 1: { 1: { 1: x }, 2: { 1: w }, 3: y } };
const read = { 7: { 1: y } };
const reply = await call('ComputeService/Execute', { // one round trip
  1: session, 2: [write(x, floats(1, 2, 3)), write(w, floats(1, 0, 0, 1, 1, 1)), matmul, read] });
const [output, report] = [reply[2][0], decode(reply[1][0])];
const kernel = decode(report[4][2])[2][0];
console.log(output.readFloatLE(0), output.readFloatLE(4), 'by', `${kernel}`, 'on', `${report[1][0]}`);
await call('SessionService/CloseSession', { 1: session }); // frees its buffers
http.close();
