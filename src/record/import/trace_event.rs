//! One event of a trace, of which only what an import looks at is taken. Whatever stands where something else is meant is as
//! good as missing: traces are written by many programs.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Letters of a process or a thread that is no number.
const MOST_KEY: usize = 64;
/// The arguments that are looked at.
const ARGS: [&str; 21] = [
    "step",
    "step_num",
    "iteration",
    "loss",
    "samples",
    "hidden_us",
    "name",
    "value",
    "comm",
    "seq",
    "bytes",
    "datatype",
    "every",
    "start_time_since_epoch_in_micros",
    "device",
    "Collective name",
    "Group size",
    "Process Group Name",
    "In msg nelems",
    "dtype",
    "labels",
];

/// By its first byte, which lengths a name in [`ARGS`] has, a bit each: most other names are told from those by that.
static LENGTHS: [u64; 256] = lengths();

const fn lengths() -> [u64; 256] {
    let mut all = [0; 256];
    let mut at = 0;
    while at < ARGS.len() {
        let name = ARGS[at].as_bytes();
        all[name[0] as usize] |= 1_u64 << name.len();
        at += 1;
    }
    all
}

/// Where a name stands in [`ARGS`].
fn place_of(name: &str) -> Option<usize> {
    let lengths = LENGTHS[usize::from(*name.as_bytes().first()?)];
    if name.len() > 63 || (lengths >> name.len()) & 1 == 0 {
        return None;
    }
    ARGS.iter().position(|known| *known == name)
}

/// An event.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TraceEvent<'a> {
    #[serde(borrow)]
    pub(super) ph: Scalar<'a>,
    #[serde(borrow)]
    pub(super) name: Scalar<'a>,
    #[serde(borrow)]
    pub(super) cat: Scalar<'a>,
    #[serde(borrow)]
    pub(super) ts: Scalar<'a>,
    #[serde(borrow)]
    pub(super) dur: Scalar<'a>,
    #[serde(borrow)]
    pub(super) pid: Scalar<'a>,
    #[serde(borrow)]
    pub(super) tid: Scalar<'a>,
    #[serde(borrow)]
    pub(super) args: Args<'a>,
}

impl<'a> TraceEvent<'a> {
    /// Reads one; `None` where it is no event.
    pub(super) fn read(text: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    /// Its kind: `X`, `B`, `M`.
    pub(super) fn phase(&self) -> &str {
        self.ph.text()
    }

    /// From when to when a complete event lasts, nanoseconds by the trace's clock.
    pub(super) fn span(&self) -> Option<(i64, i64)> {
        let from = self.ts.nanos()?;
        Some((from, from.checked_add(self.dur.nanos()?.max(0))?))
    }
}

/// A number or a text.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) enum Scalar<'a> {
    /// There is none, or it is a list, an object or a truth.
    #[default]
    Missing,
    Whole(i64),
    Real(f64),
    Text(Cow<'a, str>),
}

impl Scalar<'_> {
    /// The text; empty where it is none.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            _ => "",
        }
    }

    /// A whole number.
    pub(super) fn whole(&self) -> Option<i64> {
        match self {
            Self::Whole(number) => Some(*number),
            Self::Real(number) if number.fract() == 0.0 && number.abs() < 9e15 => Some(*number as i64),
            Self::Text(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// The same without a sign.
    pub(super) fn count(&self) -> Option<u64> {
        self.whole().and_then(|number| u64::try_from(number).ok())
    }

    /// Any number.
    pub(super) fn real(&self) -> Option<f64> {
        match self {
            Self::Whole(number) => Some(*number as f64),
            Self::Real(number) => Some(*number),
            _ => None,
        }
    }

    /// What it is, as one text: that of a process or a thread.
    pub(super) fn key(&self) -> String {
        match self.whole() {
            Some(number) => number.to_string(),
            None => self.text().chars().take(MOST_KEY).collect(),
        }
    }

    /// Microseconds, with a fraction or without, in nanoseconds.
    pub(super) fn nanos(&self) -> Option<i64> {
        match self {
            Self::Whole(micros) => micros.checked_mul(1_000),
            Self::Real(micros) if micros.abs() < 9e15 => Some((micros * 1e3).round() as i64),
            Self::Text(text) => Self::Real(text.parse().ok()?).nanos(),
            _ => None,
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Scalar<'a> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_any(AnyScalar)
    }
}

struct AnyScalar;

impl<'de> Visitor<'de> for AnyScalar {
    type Value = Scalar<'de>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a number or a text")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Scalar::Missing)
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Scalar::Whole(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(i64::try_from(number).map_or(Scalar::Real(number as f64), Scalar::Whole))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Scalar::Real(number))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Scalar::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Scalar::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Scalar::Missing)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::Missing)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::Missing)
    }
}

/// The arguments of an event that are looked at, by their place in [`ARGS`]; most events have none.
#[derive(Debug, Default)]
pub(super) struct Args<'a>(Vec<(usize, Scalar<'a>)>);

impl<'a> Args<'a> {
    /// An argument by its name, one of [`ARGS`].
    pub(super) fn get(&self, name: &str) -> &Scalar<'a> {
        const MISSING: &Scalar<'_> = &Scalar::Missing;
        // of one that is told twice the last
        let told = self.0.iter().rev().find(|(at, _)| ARGS[*at] == name);
        told.map_or(MISSING, |(_, value)| value)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Args<'a> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_any(AnyArgs)
    }
}

struct AnyArgs;

macro_rules! no_args {
    ($($name:ident: $type:ty),*) => {
        $(fn $name<E>(self, _: $type) -> Result<Self::Value, E> {
            Ok(Args::default())
        })*
    };
}

impl<'de> Visitor<'de> for AnyArgs {
    type Value = Args<'de>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("arguments")
    }

    no_args!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Args::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Args::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut args = Args::default();
        while let Some(Key(at)) = map.next_key()? {
            match at {
                Some(at) => args.0.push((at, map.next_value()?)),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(args)
    }
}

/// Which of [`ARGS`] a name is.
struct Key(Option<usize>);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_str(AnyKey)
    }
}

struct AnyKey;

impl Visitor<'_> for AnyKey {
    type Value = Key;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Key(place_of(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_another_kind_is_missing_and_spoils_nothing() {
        let text = br#"{"ph":"X","name":["a"],"ts":1.5,"dur":2,"pid":"Spans","tid":true,"args":{"step":{"x":[1]},"loss":"n\u0061n","new":[[]]},"more":null}"#;
        let event = TraceEvent::read(text).unwrap();
        assert_eq!((event.phase(), event.name.text(), event.span()), ("X", "", Some((1_500, 3_500))));
        assert_eq!((event.pid.text(), &event.tid), ("Spans", &Scalar::Missing));
        assert_eq!((event.args.get("step"), event.args.get("loss").text()), (&Scalar::Missing, "nan"));
        assert_eq!(event.args.get("new"), &Scalar::Missing);
        for args in ["null", "7", "\"x\"", "[1,{}]", "-1", "true"] {
            let text = format!("{{\"ph\":\"i\",\"args\":{args},\"ts\":18446744073709551615}}");
            let event = TraceEvent::read(text.as_bytes()).unwrap();
            assert_eq!((event.phase(), event.span()), ("i", None), "{args}");
        }
        assert!(TraceEvent::read(b"{\"ph\":\"X\"").is_none());
    }

    #[test]
    fn arguments_are_known_by_their_whole_names() {
        for (at, name) in ARGS.into_iter().enumerate() {
            assert_eq!(place_of(name), Some(at), "{name}");
            assert_eq!((place_of(&name[1..]), place_of(&format!("{name}s"))), (None, None), "{name}");
        }
        let long = "s".repeat(64);
        for name in ["", "stet", "Ev Idx", "External id", "é", long.as_str()] {
            assert_eq!(place_of(name), None, "{name}");
        }
    }
}
