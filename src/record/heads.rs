//! The beginnings of the chunks of a large file, read side by side: to unpack them is most of what opening one takes.
//!
//! What is found is only ever what [`chunk::head`] says of the bytes at a place. A walk that comes to a chunk which is not among them
//! reads that itself, so it finds the same with and without them.

use std::collections::HashMap;
use std::num::NonZero;
use std::thread;

use super::chunk;
use super::format::ChunkNote;
use super::scan::{Bytes, Found, RecordScanner};
use crate::domain::run::RunSpec;

/// With fewer chunks there is nothing to gain.
const LEAST: usize = 256;
/// So many threads at most: each may unpack the largest chunk that there is.
const MOST_THREADS: usize = 4;

/// What stands at the beginning of a chunk, or why it is bad.
pub(super) type Head = Result<(ChunkNote, Option<RunSpec>), String>;

/// The beginnings of chunks by where these lie and how long they are.
#[derive(Debug, Default)]
pub(super) struct Heads(HashMap<(u64, usize), Head>);

impl Heads {
    /// Those of the chunks from `from` on, up to the first place that is not as a writer makes it.
    pub(super) fn read(bytes: &mut Bytes, from: u64) -> std::io::Result<Self> {
        let mut scanner = RecordScanner::new(from);
        let mut places = Vec::new();
        while let Some(Found::Chunk(at, length)) = scanner.next(bytes)? {
            places.push((at, length));
        }
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS);
        if places.len() < LEAST || threads < 2 {
            return Ok(Self::default());
        }
        let bytes = &*bytes;
        let read = |places: &[(u64, usize)]| -> Vec<((u64, usize), Head)> {
            let mut has_spec = false;
            let head = |place: &(u64, usize)| {
                let head = chunk::head(&bytes.read(place.0, place.1).ok()?);
                // a recording has one; more are not held all at once
                let more = matches!(head, Ok((_, Some(_)))) && std::mem::replace(&mut has_spec, true);
                (!more).then_some((*place, head))
            };
            places.iter().filter_map(head).collect()
        };
        let parts = places.chunks(places.len().div_ceil(threads));
        let heads = thread::scope(|scope| {
            let start = |part| thread::Builder::new().spawn_scoped(scope, move || read(part)).ok();
            let work: Vec<_> = parts.filter_map(start).collect();
            // what no thread came to is read by the walk
            work.into_iter().flat_map(|work| work.join().unwrap_or_default()).collect()
        });
        Ok(Self(heads))
    }

    /// That of the chunk at a place, if it was read.
    pub(super) fn take(&mut self, at: u64, length: usize) -> Option<Head> {
        self.0.remove(&(at, length))
    }
}
