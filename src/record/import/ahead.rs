//! Takes the text of a trace apart on a second thread while what stands in it is read here: to unpack it and to find where its events end
//! is a third of the work. What was found is handed over many events at a time.

use std::io::Read;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use super::scanner::{Item, Scanner};

/// Bytes that are handed over together, and items.
const TOGETHER: usize = 1 << 16;
const MOST_ITEMS: usize = 1 << 12;
/// So many times as much waits to be read.
const AHEAD: usize = 4;

/// Some items that follow each other.
#[derive(Default)]
struct Batch {
    /// What stands in all of them.
    text: Vec<u8>,
    /// Where each ends in it, and the name of one that is no event.
    items: Vec<(usize, Option<String>)>,
}

impl Batch {
    fn add(&mut self, item: Item<'_>) {
        let (name, text) = match item {
            Item::Event(text) => (None, text),
            Item::Head(name, text) => (Some(name), text),
        };
        self.text.extend_from_slice(text);
        self.items.push((self.text.len(), name));
    }

    fn is_full(&self) -> bool {
        self.text.len() >= TOGETHER || self.items.len() >= MOST_ITEMS
    }

    fn give<E>(self, take: &mut dyn FnMut(Item<'_>) -> Result<(), E>) -> Result<(), E> {
        let mut start = 0;
        for (end, name) in self.items {
            let text = &self.text[start..end];
            start = end;
            take(match name {
                Some(name) => Item::Head(name, text),
                None => Item::Event(text),
            })?;
        }
        Ok(())
    }
}

/// Gives all items of a text in their order, and the scanner behind the last one, to be asked how the text ends.
///
/// # Errors
/// The first one of `take`; the text is read no further then.
pub(super) fn each<R: Read + Send, E>(
    mut scanner: Scanner<R>,
    take: &mut dyn FnMut(Item<'_>) -> Result<(), E>,
) -> Result<Scanner<R>, E> {
    let lent = &mut scanner;
    let is_started = thread::scope(|scope| -> Result<bool, E> {
        let (give, given) = sync_channel(AHEAD);
        let work = move || scan(lent, &give);
        let is_started = thread::Builder::new().spawn_scoped(scope, work).is_ok();
        for batch in given {
            batch.give(take)?;
        }
        Ok(is_started)
    })?;
    // where there is no second thread to be had
    while !is_started && let Some(item) = scanner.next(true) {
        take(item)?;
    }
    Ok(scanner)
}

/// Takes the text apart to its end, or until nothing is taken any more.
fn scan<R: Read>(scanner: &mut Scanner<R>, give: &SyncSender<Batch>) {
    let mut batch = Batch::default();
    while let Some(item) = scanner.next(true) {
        batch.add(item);
        if batch.is_full() && give.send(std::mem::take(&mut batch)).is_err() {
            return;
        }
    }
    drop(give.send(batch));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::import::scanner::End;

    /// So many events with a value before and one behind them.
    fn text(events: usize) -> String {
        let all: Vec<String> = (0..events).map(|at| format!("{{\"at\":{at}}}")).collect();
        format!("{{\"schema\":7,\"traceEvents\":[{}],\"last\":\"x\"}}", all.join(","))
    }

    fn told(item: &Item<'_>) -> String {
        match item {
            Item::Event(text) => String::from_utf8_lossy(text).into_owned(),
            Item::Head(name, text) => format!("{name}={}", String::from_utf8_lossy(text)),
        }
    }

    #[test]
    fn items_come_in_order_however_many_are_handed_over_together() {
        for events in [0, 1, MOST_ITEMS - 1, MOST_ITEMS, 5 * MOST_ITEMS + 7] {
            let text = text(events);
            let mut plain = Scanner::new(text.as_bytes());
            let mut wanted = Vec::new();
            while let Some(item) = plain.next(true) {
                wanted.push(told(&item));
            }
            let mut given = Vec::new();
            let take = &mut |item: Item<'_>| -> Result<(), ()> {
                given.push(told(&item));
                Ok(())
            };
            let scanner = each(Scanner::new(text.as_bytes()), take).unwrap();
            assert!(given == wanted && given.len() == events + 2, "{events} events");
            assert_eq!((scanner.ending(), scanner.bytes()), (End::Whole, text.len() as u64));
        }
    }

    #[test]
    fn how_a_text_ends_is_told_by_the_scanner() {
        let text = text(9_000);
        let cut = &text.as_bytes()[..60_000];
        let mut count = 0;
        let take = &mut |_: Item<'_>| -> Result<(), ()> {
            count += 1;
            Ok(())
        };
        let scanner = each(Scanner::new(cut), take).unwrap();
        assert!(matches!(scanner.ending(), End::Cut(at) if at > 59_980) && count > 4_000, "{count}");
    }

    #[test]
    fn behind_an_error_nothing_is_read() {
        let text = text(100 * MOST_ITEMS);
        let mut count = 0;
        let take = &mut |_: Item<'_>| {
            count += 1;
            if count == 5 { Err("enough") } else { Ok(()) }
        };
        let error = each(Scanner::new(text.as_bytes()), take).err();
        assert_eq!((error, count), (Some("enough"), 5));
    }
}
