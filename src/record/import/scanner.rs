//! Takes a JSON trace apart without reading it as a whole: its events one by one, and what else stands at its outermost.
//!
//! Only braces, brackets and strings are looked at; what an event says is its reader's business. So memory is bounded by the
//! largest event that is taken, nesting costs nothing, and a text that is cut in the middle gives all that stands before the
//! cut. Commas are not insisted upon: traces that were killed end with one, and some writers leave one before the bracket.

use std::io::{ErrorKind, Read};

/// The largest event that is taken.
const MOST_EVENT: usize = 1 << 20;
/// The largest value beside the events that is taken.
const MOST_HEAD: usize = 1 << 18;
/// The longest name of such a value.
const MOST_KEY: usize = 256;
/// How deep an event may be nested.
const MOST_DEPTH: usize = 64;
/// Bytes that may be nested deeper, one behind another: with more it is no trace, and may have no end.
const MOST_DEEP: u64 = 16 << 20;
/// Bytes between two values that say nothing: blanks, commas, stray signs.
const MOST_IDLE: u64 = 16 << 20;
/// Values among the events that may be passed over where there is no event.
const MOST_REFUSED: u64 = 1 << 20;
const READ: usize = 1 << 18;
/// What is looked for within a string, and within an object or a list: most bytes are neither, and are passed quickly.
const IN_STRING: [bool; 256] = any_of(b"\"\\");
const NESTED: [bool; 256] = any_of(b"\"{}[]");

const fn any_of(bytes: &[u8]) -> [bool; 256] {
    let mut all = [false; 256];
    let mut at = 0;
    while at < bytes.len() {
        all[bytes[at] as usize] = true;
        at += 1;
    }
    all
}

/// What stands next in the trace.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item<'a> {
    /// An event: an object, not looked into.
    Event(&'a [u8]),
    /// Another value of the object that the trace is.
    Head(String, &'a [u8]),
}

/// What the text is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shape {
    /// There is nothing but white space.
    Empty,
    /// A list, as Horovod writes.
    Array,
    /// An object with a list `traceEvents`, if it has come to that.
    Object,
    /// Something else, which begins like this.
    Other(String),
}

/// How the text ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// As it should.
    Whole,
    /// Between two events, without the brackets that close it.
    Open,
    /// In the middle of something that begins at this byte.
    Cut(u64),
    /// At this byte it could not be read any further, for this reason.
    Unreadable(u64, String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Begin,
    Events { in_object: bool },
    Object,
    Done,
}

/// What became of a value.
enum Found {
    /// It lies between `start` and here in the buffer.
    At(usize),
    /// It is too large or nested too deep, and was passed over.
    Refused,
    /// The text ends within it.
    Cut,
}

/// Reads a trace.
pub(super) struct Scanner<R> {
    from: R,
    buffer: Vec<u8>,
    /// What of the buffer was read and not given out.
    start: usize,
    end: usize,
    /// Bytes of the text before the buffer.
    passed: u64,
    is_over: bool,
    failed: Option<String>,
    place: Place,
    shape: Shape,
    cut: Option<u64>,
    /// Events that are too large or nested too deep, and values that are no events.
    refused: u64,
    /// Bytes between values that were passed since the last item.
    idle: u64,
    /// Whether any event was given out.
    has_given: bool,
    /// Whether there was a list `traceEvents`.
    has_events: bool,
}

impl<R: Read> Scanner<R> {
    pub(super) fn new(from: R) -> Self {
        Self {
            from,
            buffer: vec![0; READ],
            start: 0,
            end: 0,
            passed: 0,
            is_over: false,
            failed: None,
            place: Place::Begin,
            shape: Shape::Empty,
            cut: None,
            refused: 0,
            idle: 0,
            has_given: false,
            has_events: false,
        }
    }

    /// What the text is, as far as it was read.
    pub(super) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Whether there was a list of events.
    pub(super) fn has_events(&self) -> bool {
        self.has_events
    }

    /// Values among the events that were passed over.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// How many bytes of the text were read.
    pub(super) fn bytes(&self) -> u64 {
        self.passed + self.start as u64
    }

    /// How the text ends; to be asked after its last item.
    pub(super) fn ending(&self) -> End {
        match (&self.failed, self.cut, self.place) {
            (Some(why), at, _) => End::Unreadable(at.unwrap_or_else(|| self.bytes()), why.clone()),
            (None, Some(at), _) => End::Cut(at),
            (None, None, Place::Done) => End::Whole,
            (None, None, _) => End::Open,
        }
    }

    /// The next item; `None` behind the last one. With `events` false, lists of events are passed over.
    pub(super) fn next(&mut self, events: bool) -> Option<Item<'_>> {
        loop {
            let byte = self.peek()?;
            match self.place {
                Place::Begin => self.begin(byte),
                Place::Done => return None,
                Place::Events { in_object } => match byte {
                    b']' => {
                        self.start += 1;
                        self.place = if in_object { Place::Object } else { Place::Done };
                    }
                    b',' => self.pass(),
                    _ => match self.value(if byte == b'{' && events { MOST_EVENT } else { 0 }) {
                        Found::At(to) => {
                            let from = std::mem::replace(&mut self.start, to);
                            (self.has_given, self.idle) = (true, 0);
                            return Some(Item::Event(&self.buffer[from..to]));
                        }
                        Found::Refused if !self.has_given && self.refused >= MOST_REFUSED => {
                            return self.give_up(format!("its first {MOST_REFUSED} values are no events"));
                        }
                        Found::Refused => self.refused += 1,
                        Found::Cut => return None,
                    },
                },
                Place::Object => match byte {
                    b'}' => {
                        self.start += 1;
                        self.place = Place::Done;
                    }
                    b'"' => {
                        let key = self.key()?;
                        let is_list = self.peek()? == b'[';
                        if key == "traceEvents" && is_list {
                            self.has_events = true;
                            if events {
                                self.start += 1;
                                self.place = Place::Events { in_object: true };
                                continue;
                            }
                        }
                        let most = if key == "traceEvents" { 0 } else { MOST_HEAD };
                        match self.value(most) {
                            Found::At(to) => {
                                let from = std::mem::replace(&mut self.start, to);
                                self.idle = 0;
                                return Some(Item::Head(key, &self.buffer[from..to]));
                            }
                            Found::Refused => {}
                            Found::Cut => return None,
                        }
                    }
                    _ => self.pass(),
                },
            }
        }
    }

    /// Passes a byte that says nothing.
    fn pass(&mut self) {
        self.start += 1;
        self.idle += 1;
    }

    /// Reads no further.
    fn give_up<T>(&mut self, why: String) -> Option<T> {
        self.failed = Some(why);
        self.is_over = true;
        self.place = Place::Done;
        None
    }

    fn begin(&mut self, byte: u8) {
        match byte {
            b'[' => {
                self.start += 1;
                (self.place, self.shape) = (Place::Events { in_object: false }, Shape::Array);
                self.has_events = true;
            }
            b'{' => {
                self.start += 1;
                (self.place, self.shape) = (Place::Object, Shape::Object);
            }
            _ => {
                let first = &self.buffer[self.start..self.end.min(self.start + 40)];
                let first = String::from_utf8_lossy(first);
                self.shape = Shape::Other(first.lines().next().unwrap_or_default().to_owned());
                self.place = Place::Done;
            }
        }
    }

    /// A name and the colon behind it.
    fn key(&mut self) -> Option<String> {
        let key = match self.value(MOST_KEY) {
            Found::At(to) => {
                let from = std::mem::replace(&mut self.start, to);
                serde_json::from_slice(&self.buffer[from..to]).unwrap_or_default()
            }
            Found::Refused => String::new(),
            Found::Cut => return None,
        };
        if self.peek()? == b':' {
            self.start += 1;
        }
        Some(key)
    }

    /// The next byte that is no white space; it is not passed.
    fn peek(&mut self) -> Option<u8> {
        loop {
            while let Some(byte) = self.buffer[self.start..self.end].first() {
                let is_mark = matches!(byte, 0xef | 0xbb | 0xbf) && self.place == Place::Begin;
                if !byte.is_ascii_whitespace() && !is_mark {
                    return Some(*byte);
                }
                self.pass();
            }
            if self.idle > MOST_IDLE {
                return self.give_up(format!("{} M of it say nothing", MOST_IDLE >> 20));
            }
            if !self.fill() {
                return None;
            }
        }
    }

    /// Reads on; what lies before `start` is forgotten. `false` at the end of the text.
    fn fill(&mut self) -> bool {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.passed += self.start as u64;
            self.end -= self.start;
            self.start = 0;
        }
        if self.end + READ / 2 > self.buffer.len() {
            self.buffer.resize(self.end + READ, 0);
        }
        while !self.is_over {
            match self.from.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.is_over = true,
                Ok(count) => {
                    self.end += count;
                    return true;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.failed = Some(error.to_string());
                    self.is_over = true;
                }
            }
        }
        false
    }

    /// Where the value ends that begins at `start`. One of more than `most` bytes is passed over as it is read.
    fn value(&mut self, most: usize) -> Found {
        let began = self.bytes();
        let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
        let mut is_kept = most > 0;
        // from where on it is nested too deep
        let mut deep_from = None;
        // how far behind `start` it was looked at
        let mut seen = 0;
        loop {
            is_kept &= seen <= most && depth <= MOST_DEPTH;
            if !is_kept {
                self.start += seen;
                seen = 0;
            }
            let rest = &self.buffer[self.start + seen..self.end];
            let mut ends = None;
            let mut looked = rest.len();
            let mut at = 0;
            while at < rest.len() {
                if escaped {
                    escaped = false;
                    at += 1;
                    continue;
                }
                if in_string || depth > 0 {
                    let wanted = if in_string { &IN_STRING } else { &NESTED };
                    let passed = rest[at..].iter().position(|byte| wanted[usize::from(*byte)]);
                    let Some(passed) = passed else { break };
                    at += passed;
                }
                let byte = rest[at];
                if in_string {
                    escaped = byte == b'\\';
                    in_string = escaped;
                    if !in_string && depth == 0 {
                        ends = Some(at + 1);
                        break;
                    }
                    at += 1;
                    continue;
                }
                match byte {
                    b'"' => in_string = true,
                    b'{' | b'[' => {
                        depth += 1;
                        if depth == MOST_DEPTH + 1 {
                            deep_from = Some(self.bytes() + (seen + at) as u64);
                        }
                    }
                    b'}' | b']' if depth > 0 => {
                        if depth == MOST_DEPTH + 1 {
                            deep_from = None;
                        }
                        depth -= 1;
                        if depth == 0 {
                            ends = Some(at + 1);
                            break;
                        }
                    }
                    // a number or a word ends before what is none of it; a stray sign is passed over
                    b',' | b'}' | b']' | b':' | b' ' | b'\n' | b'\r' | b'\t' if depth == 0 => {
                        let is_stray = self.bytes() + (seen + at) as u64 == began;
                        ends = Some(if is_stray { 1 } else { at });
                        break;
                    }
                    _ => {}
                }
                if depth > MOST_DEPTH && is_kept {
                    looked = at + 1;
                    break;
                }
                at += 1;
            }
            if let Some(at) = ends {
                let to = self.start + seen + at;
                if is_kept && seen + at <= most {
                    return Found::At(to);
                }
                self.start = to;
                return Found::Refused;
            }
            seen += looked;
            if deep_from.is_some_and(|from| self.bytes() + seen as u64 > from + MOST_DEEP) {
                self.cut = Some(began);
                self.give_up::<()>(format!(
                    "more than {} M of it are nested deeper than {MOST_DEPTH}",
                    MOST_DEEP >> 20
                ));
                return Found::Cut;
            }
            if self.start + seen == self.end && !self.fill() {
                self.cut = Some(began);
                self.start += seen;
                return Found::Cut;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives so many bytes at a time.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            let count = self.1.min(self.0.len()).min(to.len());
            let (now, rest) = self.0.split_at(count);
            to[..count].copy_from_slice(now);
            self.0 = rest;
            Ok(count)
        }
    }

    fn scanned(text: &[u8], by: usize) -> (Vec<String>, End, u64) {
        let mut scanner = Scanner::new(Slow(text, by));
        let mut items = Vec::new();
        while let Some(item) = scanner.next(true) {
            items.push(match item {
                Item::Event(text) => String::from_utf8_lossy(text).into_owned(),
                Item::Head(key, text) => format!("{key}={}", String::from_utf8_lossy(text)),
            });
        }
        (items, scanner.ending(), scanner.refused())
    }

    #[test]
    fn it_is_the_same_however_the_bytes_come() {
        let text = "\u{feff} ".to_owned()
            + r#"{"a\"b" : 1.5, "distributedInfo":{"rank":[{}]}, "w":"}]\\","traceEvents":
            [{"name":"}{]\\\"["},7, [{"x":1}], {} ,,{"args":{"a":[[]]}},], "last" : null }"#;
        let events = [r#"{"name":"}{]\\\"["}"#, "{}", r#"{"args":{"a":[[]]}}"#];
        let heads = ["a\"b=1.5", "distributedInfo={\"rank\":[{}]}", r#"w="}]\\""#];
        let all: Vec<String> =
            heads.into_iter().chain(events).chain(["last=null"]).map(str::to_owned).collect();
        let whole = (all, End::Whole, 2);
        assert_eq!(scanned(text.as_bytes(), 1 << 20), whole);
        for by in 1..9 {
            assert_eq!(scanned(text.as_bytes(), by), whole, "{by}");
        }
        // every beginning has what stands in it whole
        for at in 0..text.len() {
            let (begun, end, _) = scanned(&text.as_bytes()[..at], 3);
            assert!(whole.0.starts_with(&begun) && end != End::Whole, "{at}: {begun:?} {end:?}");
        }
    }

    #[test]
    fn anything_comes_to_an_end() {
        let signs = b"[]{}\",:\\ a1\n";
        let mut random = 7_u64;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % below
        };
        for _ in 0..3_000 {
            let text: Vec<u8> = (0..30).map(|_| signs[next(signs.len())]).collect();
            let (items, ..) = scanned(&text, 1 + next(5));
            assert!(items.len() <= 30, "{text:?}");
        }
    }

    #[test]
    fn what_is_too_large_or_too_deep_is_passed_over() {
        let deep = format!("[{{\"a\":{}1{}}},{{\"b\":1}},", "[".repeat(70), "]".repeat(70));
        let rest = || vec!["{\"b\":1}".to_owned()];
        assert_eq!(scanned(deep.as_bytes(), 7), (rest(), End::Open, 1));
        let large = format!("[{{\"a\":\"{}\"}},{{\"b\":1}}", "x".repeat(MOST_EVENT));
        assert_eq!(scanned(large.as_bytes(), 1 << 16), (rest(), End::Open, 1));
        let cut = &large.as_bytes()[..large.len() - 12];
        assert_eq!(scanned(cut, 1 << 16), (vec![], End::Cut(1), 0));
    }

    /// Gives the same bytes again and again, without end.
    struct Endless(&'static [u8], u64);

    impl Read for Endless {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            for (at, byte) in to.iter_mut().enumerate() {
                *byte = self.0[(self.1 as usize + at) % self.0.len()];
            }
            self.1 += to.len() as u64;
            Ok(to.len())
        }
    }

    #[test]
    fn what_has_no_end_is_not_read_to_its_end() {
        for (text, words) in [
            (&b"["[..], "more than 16 M of it are nested deeper than 64"),
            (b"{\"a\":", "more than 16 M of it are nested deeper than 64"),
            (b"[],", "its first 1048576 values are no events"),
            (b" ", "16 M of it say nothing"),
            (b",", "16 M of it say nothing"),
        ] {
            let mut scanner = Scanner::new((&b"["[..]).chain(Endless(text, 0)));
            assert_eq!(scanner.next(true), None);
            assert!(matches!(scanner.ending(), End::Unreadable(_, why) if why == words), "{words}");
            assert!(scanner.bytes() < 18 << 20 && scanner.buffer.len() <= 4 * READ, "{words}");
        }
    }
}
