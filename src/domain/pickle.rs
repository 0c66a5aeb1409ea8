//! Reads the part of Python's pickle format that holds plain data: numbers, text, lists, tuples and dictionaries. Nothing
//! is ever called or imported: an instruction that would do so is an error, like any other that is not listed here.
//! Source: <https://docs.python.org/3/library/pickletools.html>.

use std::collections::HashMap;

/// Values, and references to values, in one pickle.
const MOST: usize = 1 << 22;

/// A value and what it contains.
#[derive(Debug, Clone, Copy)]
pub struct Value<'p> {
    pickle: &'p Pickle<'p>,
    at: u32,
}

/// A pickle that was read.
#[derive(Debug)]
pub struct Pickle<'b> {
    nodes: Vec<Node<'b>>,
    root: u32,
}

#[derive(Debug)]
enum Node<'b> {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'b str),
    /// A list or a tuple.
    List(Vec<u32>),
    Dict(Vec<(u32, u32)>),
}

/// Why bytes are no pickle of plain data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PickleError {
    /// They end before the pickle does.
    #[error("it ends after {0} bytes, in the middle")]
    Short(usize),
    /// An instruction that is not read.
    #[error("instruction 0x{code:02x} at byte {at} makes no plain data")]
    Instruction {
        /// The instruction.
        code: u8,
        /// Where it is.
        at: usize,
    },
    /// An instruction without what it works on.
    #[error("malformed at byte {0}")]
    Malformed(usize),
    /// It has too many values.
    #[error("it has more than {MOST} values")]
    Large,
}

impl<'b> Pickle<'b> {
    /// Reads one pickle; bytes after it are left alone.
    ///
    /// # Errors
    /// The bytes are no pickle of plain data, or of too much.
    pub fn read(bytes: &'b [u8]) -> Result<Self, PickleError> {
        let mut reader = Reader { bytes, at: 0, begun: 0, nodes: Vec::new(), held: 0, stack: Vec::new() };
        let root = reader.run()?;
        Ok(Self { nodes: reader.nodes, root })
    }

    /// All of it.
    pub fn root(&self) -> Value<'_> {
        Value { pickle: self, at: self.root }
    }
}

struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
    /// Where the present instruction begins.
    begun: usize,
    nodes: Vec<Node<'b>>,
    /// References to values, within values.
    held: usize,
    stack: Vec<u32>,
}

impl<'b> Reader<'b> {
    fn run(&mut self) -> Result<u32, PickleError> {
        let mut marks: Vec<usize> = Vec::new();
        let mut memo: HashMap<u32, u32> = HashMap::new();
        loop {
            self.begun = self.at;
            let code = self.byte()?;
            match code {
                // protocol, frame: their arguments say nothing of the data
                0x80 => drop(self.take(1)?),
                0x95 => drop(self.take(8)?),
                b'.' => return self.pop(&marks),
                b'(' => marks.push(self.stack.len()),
                b'N' => self.push(Node::Null)?,
                0x88 | 0x89 => self.push(Node::Bool(code == 0x88))?,
                b'K' | b'M' => {
                    let number = self.number(if code == b'K' { 1 } else { 2 })?;
                    self.push(Node::Int(number.cast_signed()))?;
                }
                b'J' => {
                    let number = u32::try_from(self.number(4)?).unwrap_or_default().cast_signed();
                    self.push(Node::Int(number.into()))?;
                }
                0x8a => {
                    let number = self.long()?;
                    self.push(Node::Int(number))?;
                }
                b'G' => {
                    let bytes = self.take(8)?.try_into().map_err(|_| self.malformed())?;
                    self.push(Node::Float(f64::from_be_bytes(bytes)))?;
                }
                b'X' | 0x8c => {
                    let length = self.number(if code == b'X' { 4 } else { 1 })?;
                    let bytes = self.take(usize::try_from(length).unwrap_or(usize::MAX))?;
                    let text = std::str::from_utf8(bytes).map_err(|_| self.malformed())?;
                    self.push(Node::Text(text))?;
                }
                b']' | b')' => self.push(Node::List(Vec::new()))?,
                b'}' => self.push(Node::Dict(Vec::new()))?,
                0x85..=0x87 => {
                    let from = self.stack.len().checked_sub(usize::from(code - 0x84));
                    let from = from.filter(|from| marks.last().is_none_or(|mark| mark <= from));
                    let items = self.above(from)?;
                    self.push_list(items)?;
                }
                b't' => {
                    let items = self.above(marks.pop())?;
                    self.push_list(items)?;
                }
                b'a' => {
                    let item = self.pop(&marks)?;
                    self.extend(&marks, vec![item])?;
                }
                b'e' => {
                    let items = self.above(marks.pop())?;
                    self.extend(&marks, items)?;
                }
                b's' => {
                    let (value, key) = (self.pop(&marks)?, self.pop(&marks)?);
                    self.insert(&marks, &[key, value])?;
                }
                b'u' => {
                    let items = self.above(marks.pop())?;
                    self.insert(&marks, &items)?;
                }
                b'q' | b'r' | 0x94 => {
                    let key = match code {
                        b'q' => self.number(1)?,
                        b'r' => self.number(4)?,
                        _ => memo.len() as u64,
                    };
                    let value = self.top(&marks)?;
                    memo.insert(u32::try_from(key).map_err(|_| self.malformed())?, value);
                }
                b'h' | b'j' => {
                    let key = self.number(if code == b'h' { 1 } else { 4 })?;
                    let value = u32::try_from(key).ok().and_then(|key| memo.get(&key));
                    let value = *value.ok_or_else(|| self.malformed())?;
                    self.stack.push(value);
                }
                _ => return Err(PickleError::Instruction { code, at: self.begun }),
            }
        }
    }

    fn malformed(&self) -> PickleError {
        PickleError::Malformed(self.begun)
    }

    fn byte(&mut self) -> Result<u8, PickleError> {
        self.take(1).map(|bytes| bytes.first().copied().unwrap_or_default())
    }

    fn take(&mut self, count: usize) -> Result<&'b [u8], PickleError> {
        let end = self.at.checked_add(count);
        let taken = end.and_then(|end| self.bytes.get(self.at..end));
        let taken = taken.ok_or(PickleError::Short(self.bytes.len()))?;
        self.at += count;
        Ok(taken)
    }

    /// So many bytes, at most eight, little-endian.
    fn number(&mut self, bytes: usize) -> Result<u64, PickleError> {
        Ok(self.take(bytes)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// A number of up to eight bytes, in two's complement.
    fn long(&mut self) -> Result<i64, PickleError> {
        let length = usize::from(self.byte()?);
        if length > 8 {
            return Err(self.malformed());
        }
        let number = self.number(length)?.cast_signed();
        let unused = 64 - 8 * u32::try_from(length).unwrap_or_default();
        Ok(if length == 0 { 0 } else { number << unused >> unused })
    }

    fn push(&mut self, node: Node<'b>) -> Result<(), PickleError> {
        if self.nodes.len() + self.held >= MOST {
            return Err(PickleError::Large);
        }
        self.stack.push(u32::try_from(self.nodes.len()).map_err(|_| PickleError::Large)?);
        self.nodes.push(node);
        Ok(())
    }

    fn push_list(&mut self, items: Vec<u32>) -> Result<(), PickleError> {
        self.hold(items.len())?;
        self.push(Node::List(items))
    }

    fn hold(&mut self, count: usize) -> Result<(), PickleError> {
        self.held += count;
        if self.nodes.len() + self.held > MOST { Err(PickleError::Large) } else { Ok(()) }
    }

    fn top(&self, marks: &[usize]) -> Result<u32, PickleError> {
        let is_free = marks.last().is_none_or(|mark| *mark < self.stack.len());
        self.stack.last().copied().filter(|_| is_free).ok_or_else(|| self.malformed())
    }

    fn pop(&mut self, marks: &[usize]) -> Result<u32, PickleError> {
        let top = self.top(marks)?;
        self.stack.pop();
        Ok(top)
    }

    /// Takes what is above a place in the stack.
    fn above(&mut self, from: Option<usize>) -> Result<Vec<u32>, PickleError> {
        let from = from.filter(|from| *from <= self.stack.len()).ok_or_else(|| self.malformed())?;
        Ok(self.stack.split_off(from))
    }

    fn extend(&mut self, marks: &[usize], items: Vec<u32>) -> Result<(), PickleError> {
        self.hold(items.len())?;
        let top = self.top(marks)? as usize;
        let malformed = self.malformed();
        match self.nodes.get_mut(top) {
            Some(Node::List(list)) => list.extend(items),
            _ => return Err(malformed),
        }
        Ok(())
    }

    fn insert(&mut self, marks: &[usize], items: &[u32]) -> Result<(), PickleError> {
        self.hold(items.len())?;
        let top = self.top(marks)? as usize;
        let malformed = self.malformed();
        match self.nodes.get_mut(top) {
            Some(Node::Dict(dict)) if items.len().is_multiple_of(2) => {
                dict.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1])));
            }
            _ => return Err(malformed),
        }
        Ok(())
    }
}

impl<'p> Value<'p> {
    fn node(self) -> Option<&'p Node<'p>> {
        self.pickle.nodes.get(self.at as usize)
    }

    fn at(self, at: u32) -> Self {
        Value { at, ..self }
    }

    /// The value of a key in a dictionary; the last one where it is there twice.
    pub fn get(self, key: &str) -> Option<Self> {
        self.pairs().filter(|(name, _)| name.text() == Some(key)).last().map(|(_, value)| value)
    }

    /// Keys and values of a dictionary; nothing of any other value.
    pub fn pairs(self) -> impl Iterator<Item = (Self, Self)> {
        let pairs = if let Some(Node::Dict(pairs)) = self.node() { pairs.as_slice() } else { &[] };
        pairs.iter().map(move |(key, value)| (self.at(*key), self.at(*value)))
    }

    /// Whether it is a list or a tuple.
    pub fn is_list(self) -> bool {
        matches!(self.node(), Some(Node::List(_)))
    }

    /// What is in a list or a tuple; nothing of any other value.
    pub fn items(self) -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator {
        let items = if let Some(Node::List(items)) = self.node() { items.as_slice() } else { &[] };
        items.iter().map(move |item| self.at(*item))
    }

    /// The text that it is.
    pub fn text(self) -> Option<&'p str> {
        if let Some(Node::Text(text)) = self.node() { Some(text) } else { None }
    }

    /// The whole number that it is.
    pub fn int(self) -> Option<i64> {
        if let Some(Node::Int(number)) = self.node() { Some(*number) } else { None }
    }

    /// The number that it is.
    pub fn float(self) -> Option<f64> {
        match self.node() {
            Some(Node::Float(number)) => Some(*number),
            _ => None,
        }
    }

    /// Whether it is `True`, or `False`.
    pub fn bool(self) -> Option<bool> {
        if let Some(Node::Bool(bool)) = self.node() { Some(*bool) } else { None }
    }

    /// Whether it is `None`.
    pub fn is_null(self) -> bool {
        matches!(self.node(), Some(Node::Null))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_data_is_read() {
        // pickle.dumps({"a": [1, -2, 300, 2**40, -2**40, 2.5], "b": (True, None), "c": ("x",)}, 2)
        let bytes = b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01J\xfe\xff\xff\xffM\x2c\x01\x8a\x06\x00\x00\x00\x00\x00\x01\x8a\x06\x00\x00\x00\x00\x00\xffG@\x04\x00\x00\x00\x00\x00\x00eX\x01\x00\x00\x00bq\x03\x88N\x86q\x04X\x01\x00\x00\x00ch\x01\x85u.";
        let pickle = Pickle::read(bytes).unwrap();
        let root = pickle.root();
        let numbers: Vec<Option<i64>> = root.get("a").unwrap().items().map(Value::int).collect();
        assert_eq!(numbers, [Some(1), Some(-2), Some(300), Some(1 << 40), Some(-(1 << 40)), None]);
        assert_eq!(root.get("a").unwrap().items().last().unwrap().float(), Some(2.5));
        let mut pair = root.get("b").unwrap().items();
        assert_eq!(pair.next().unwrap().bool(), Some(true));
        assert!(pair.next().unwrap().is_null());
        assert_eq!(root.get("c").unwrap().items().next().unwrap().text(), Some("a"));
        assert!(root.get("d").is_none() && root.items().next().is_none());
        for end in 0..bytes.len() {
            assert!(matches!(Pickle::read(&bytes[..end]), Err(PickleError::Short(_))), "{end}");
        }
    }

    #[test]
    fn what_would_run_code_is_refused() {
        let refused = Pickle::read(b"cos\nsystem\n(X\x04\x00\x00\x00trueq\x00tR.").unwrap_err();
        assert_eq!(refused, PickleError::Instruction { code: b'c', at: 0 });
        assert_eq!(refused.to_string(), "instruction 0x63 at byte 0 makes no plain data");
    }

    #[test]
    fn it_does_not_grow_by_references() {
        // each list holds the one before it many times
        let mut bytes = b"]q\x00".to_vec();
        for round in 0..100u8 {
            bytes.push(b'(');
            bytes.extend([b'h', round].repeat(100));
            bytes.extend([b't', b'q', round + 1]);
        }
        bytes.push(b'.');
        let pickle = Pickle::read(&bytes).unwrap();
        assert_eq!((pickle.nodes.len(), pickle.root().items().len()), (101, 100));
        let many = [b"(".as_slice(), &[b'N'].repeat(MOST), b"t."].concat();
        assert_eq!(Pickle::read(&many).unwrap_err(), PickleError::Large);
        assert!(matches!(Pickle::read(b"(a."), Err(PickleError::Malformed(1))));
        assert!(matches!(Pickle::read(b"N(."), Err(PickleError::Malformed(2))));
    }

    proptest! {
        #[test]
        fn garbage_never_panics(
            codes in prop::collection::vec(
                prop::sample::select(b"\x80\x88\x89\x8a\x8c\x94\x95\x85\x86\x87.(NKMJGX])}taesuqrhj\x00\x01\x02".to_vec()),
                0..400,
            ),
            bytes in prop::collection::vec(any::<u8>(), 0..400),
        ) {
            for bytes in [codes, bytes] {
                if let Ok(pickle) = Pickle::read(&bytes) {
                    let _ = pickle.root().get("entries").map(|entries| entries.items().len());
                }
            }
        }
    }
}
