//! The mark by which a task of srun says that it has failed and has nothing more to print. Pure.

/// What the task prints, on each of its streams.
pub const MARK: &[u8] = b"\x1ehvtui: end of output\n";

/// Takes the mark out of one stream of one task.
#[derive(Debug, Default)]
pub struct TaskEnd {
    /// What may be the beginning of the mark.
    held: Vec<u8>,
    seen: bool,
}

impl TaskEnd {
    /// Whether the mark has come.
    pub fn seen(&self) -> bool {
        self.seen
    }

    /// Further bytes of the stream; what of them is the task's own.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut text = std::mem::take(&mut self.held);
        text.extend_from_slice(bytes);
        let mut own = Vec::with_capacity(text.len());
        let mut rest = text.as_slice();
        // The mark's first byte is nowhere else in it.
        while let Some(at) = rest.iter().position(|byte| MARK.first() == Some(byte)) {
            let (before, marked) = rest.split_at(at);
            own.extend_from_slice(before);
            if MARK.starts_with(marked) && marked.len() < MARK.len() {
                self.held = marked.to_vec();
                return own;
            }
            let length = if marked.starts_with(MARK) { MARK.len() } else { 0 };
            self.seen |= length > 0;
            let (mark, after) = marked.split_at(length.max(1));
            own.extend_from_slice(if length > 0 { &[] } else { mark });
            rest = after;
        }
        own.extend_from_slice(rest);
        own
    }

    /// The stream has ended: what was held back is no mark.
    pub fn end(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_found_wherever_the_bytes_are_cut() {
        let text = [b"a\x1eb\nout".as_slice(), MARK].concat();
        for cut in 0..=text.len() {
            let mut end = TaskEnd::default();
            let own = [end.feed(&text[..cut]), end.feed(&text[cut..]), end.end()].concat();
            assert_eq!((own.as_slice(), end.seen()), (b"a\x1eb\nout".as_slice(), true), "cut at {cut}");
        }
        let mut end = TaskEnd::default();
        let own = [end.feed(b"x\x1ehvtui"), end.end()].concat();
        assert_eq!((own.as_slice(), end.seen()), (b"x\x1ehvtui".as_slice(), false));
    }
}
