// A webhook receiver as one would write it oneself: Node's own HTTP server, a BullMQ queue in Redis, a worker in the same process.
//
// It does the least that is comparable: the same signature is verified over the exact bytes, the event is in Redis before the sender gets its
// 200 (how durable that is, Redis' appendfsync says), and a worker posts it to the upstream and repeats what fails. It has no lanes, no
// history beyond the last thousand, no limits and no metrics. The group is the job's name.
//
// PORT, REDIS_PORT, UPSTREAM (a url), SECRET and CONCURRENCY (64) are in the environment. `GET /counts` says how far it is.

import { createHmac, timingSafeEqual } from 'node:crypto';
import http from 'node:http';
import { Queue, Worker } from 'bullmq';

const { PORT, REDIS_PORT, UPSTREAM, SECRET, CONCURRENCY = '64' } = process.env;
const connection = { host: '127.0.0.1', port: Number(REDIS_PORT), maxRetriesPerRequest: null };
const counts = { accepted: 0, delivered: 0 };

const queue = new Queue('events', {
  connection,
  defaultJobOptions: { attempts: 12, backoff: { type: 'exponential', delay: 5000 }, removeOnComplete: 1000 },
});

function genuine(body, signature) {
  const ours = createHmac('sha256', SECRET).update(body).digest();
  const theirs = Buffer.from(signature ?? '', 'base64');
  return ours.length === theirs.length && timingSafeEqual(ours, theirs);
}

async function take(request, response) {
  if (request.method === 'GET' && request.url === '/counts') {
    return response.end(JSON.stringify(counts));
  }
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  if (!genuine(body, request.headers['x-shopify-hmac-sha256'])) {
    response.statusCode = 401;
    return response.end();
  }
  const group = request.headers['x-shopify-shop-domain'] ?? 'none';
  await queue.add(group, { path: request.url, headers: request.headers, body: body.toString('latin1') });
  counts.accepted += 1;
  response.end();
}

const agent = new http.Agent({ keepAlive: true, maxSockets: Number(CONCURRENCY) });

function deliver({ data }) {
  const body = Buffer.from(data.body, 'latin1');
  const { connection: _, 'transfer-encoding': __, ...headers } = data.headers;
  headers['content-length'] = body.length;
  return new Promise((resolve, reject) => {
    const request = http.request(UPSTREAM + data.path, { agent, method: 'POST', headers, timeout: 30000 }, (answer) => {
      answer.resume();
      answer.on('error', reject);
      answer.on('end', () => {
        if (answer.statusCode >= 200 && answer.statusCode < 300) resolve();
        else reject(new Error(`the upstream answered ${answer.statusCode}`));
      });
    });
    request.on('timeout', () => request.destroy(new Error('the upstream did not answer within 30 s')));
    request.on('error', reject);
    request.end(body);
  });
}

let worker;
if (UPSTREAM) {
  worker = new Worker('events', deliver, { connection, concurrency: Number(CONCURRENCY) });
  worker.on('completed', () => (counts.delivered += 1));
  worker.on('error', (error) => console.error(error.message));
}

const server = http.createServer((request, response) => {
  take(request, response).catch((error) => {
    console.error(error.message);
    response.statusCode = 503;
    response.end();
  });
});
server.listen(Number(PORT), '127.0.0.1');
process.on('SIGTERM', () => process.exit(0));
