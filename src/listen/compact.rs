//! What an event keeps in memory: its own bytes and no others.
//!
//! The HTTP library gives out pieces of the buffer that it read a request into, of 8 KiB and more. An event that waits would hold all of it, and
//! the connection would take a new one for each request. So what is small is copied into one piece of its own size: the buffer is at
//! hand for the next request, warm in the processor's cache.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};

/// Bodies up to this size are copied: twice the buffer, so that what a larger one holds beside itself is little.
const COPIED_BYTES_MAX: usize = 16 * 1024;

/// Has the values of `headers`, and a small `body`, share one piece of memory of their own.
pub(super) fn compact(headers: &mut HeaderMap, body: &mut Bytes) {
    let copied: &[u8] = if body.len() <= COPIED_BYTES_MAX { body } else { &[] };
    let values: usize = headers.values().map(HeaderValue::len).sum();
    let mut own = BytesMut::with_capacity(values + copied.len());
    for value in headers.values() {
        own.extend_from_slice(value.as_bytes());
    }
    own.extend_from_slice(copied);
    let mut own = own.freeze();
    for value in headers.values_mut() {
        let mut copy = HeaderValue::from_maybe_shared(own.split_to(value.len())).expect("it was a header value before");
        copy.set_sensitive(value.is_sensitive());
        *value = copy;
    }
    if body.len() <= COPIED_BYTES_MAX {
        *body = own;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_buffer_is_kept_and_nothing_is_lost() {
        let buffer = Bytes::from([b'x'; 8192].to_vec());
        let mut body = buffer.slice(..1000);
        let mut headers = HeaderMap::new();
        for (name, range) in [("a", 0..3), ("b", 5..5), ("a", 7..11)] {
            headers.append(name, HeaderValue::from_maybe_shared(buffer.slice(range)).unwrap());
        }
        headers.append("b", HeaderValue::from_bytes(b"caf\xe9").unwrap());
        headers.get_mut("b").unwrap().set_sensitive(true);
        let before = (headers.clone(), body.clone());
        compact(&mut headers, &mut body);
        assert_eq!((&headers, &body), (&before.0, &before.1));
        assert!(headers["b"].is_sensitive());
        drop(before);
        assert!(buffer.is_unique(), "nobody else holds it");
    }

    #[test]
    fn a_large_body_stays_where_it_is() {
        let mut body = Bytes::from(vec![b'x'; COPIED_BYTES_MAX + 1]);
        let at = body.as_ptr();
        compact(&mut HeaderMap::new(), &mut body);
        assert_eq!((body.as_ptr(), body.len()), (at, COPIED_BYTES_MAX + 1));
    }
}
