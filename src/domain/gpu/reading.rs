//! A [`Reading`] off JSON in one pass. By far the most of what agents send are readings: keeping each in memory until its
//! kind is known, as a derived reader of an untagged enum does, was half of what a sample cost.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{DeserializeSeed, Deserializer, Error, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};

use super::Reading;

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Reading<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OfReading(PhantomData))
    }
}

/// Takes what comes as a value, but for `null` and `{"error": "…"}`.
struct OfReading<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OfReading<T> {
    type Value = Reading<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, null, or an object with an error")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Reading::Unsupported)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        T::deserialize(value.into_deserializer()).map(Reading::Value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        T::deserialize(value.into_deserializer()).map(Reading::Value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        T::deserialize(value.into_deserializer()).map(Reading::Value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        T::deserialize(value.into_deserializer()).map(Reading::Value)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
        T::deserialize(value.into_deserializer()).map(Reading::Value)
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Self::Value, E> {
        T::deserialize(value.into_deserializer()).map(Reading::Value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        T::deserialize(SeqAccessDeserializer::new(seq)).map(Reading::Value)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let first: Option<String> = map.next_key()?;
        if first.as_deref() == Some("error") {
            let error = map.next_value()?;
            while map.next_entry::<de::IgnoredAny, de::IgnoredAny>()?.is_some() {}
            return Ok(Reading::Failed { error });
        }
        T::deserialize(MapAccessDeserializer::new(Rest { first, map })).map(Reading::Value)
    }
}

/// A map of which the first key has been read.
struct Rest<A> {
    first: Option<String>,
    map: A,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Rest<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        match self.first.take() {
            Some(key) => seed.deserialize(key.into_deserializer()).map(Some),
            None => self.map.next_key_seed(seed),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde::Serialize;

    use super::super::GpuProcess;
    use super::*;

    fn read<T: for<'a> Deserialize<'a>>(json: &str) -> Option<Reading<T>> {
        serde_json::from_str(json).ok()
    }

    #[test]
    fn a_reading_is_a_value_none_or_an_error() {
        assert_eq!(read::<u32>("7"), Some(Reading::Value(7)));
        assert_eq!(read::<u32>("null"), Some(Reading::Unsupported));
        assert_eq!(read::<u32>(r#"{"error":"lost","since":{"a":[1]}}"#), Some(Reading::failed("lost")));
        assert_eq!(read::<u32>("4294967296"), None, "more than it holds is no value");
        assert_eq!(read::<u32>("-1"), None);
        assert_eq!(read::<u32>(r#"{"errors":"lost"}"#), None);
        assert_eq!(read::<u32>(r#"{"error":7}"#), None);
        assert_eq!(read::<u32>("{}"), None);
        assert_eq!(read::<bool>("true"), Some(Reading::Value(true)));
        assert_eq!(read::<f32>("12"), Some(Reading::Value(12.0)));
        assert_eq!(read::<f32>("0.5"), Some(Reading::Value(0.5)));
        assert_eq!(read::<String>(r#""a\nb""#), Some(Reading::Value("a\nb".to_owned())));
        assert_eq!(read::<[f32; 3]>("[1,2,3.5]"), Some(Reading::Value([1.0, 2.0, 3.5])));
        let map: BTreeMap<String, u32> = [("a".to_owned(), 1), ("b".to_owned(), 2)].into();
        assert_eq!(read(r#"{"a":1,"b":2}"#), Some(Reading::Value(map)));
        assert_eq!(read::<BTreeMap<String, u32>>("{}"), Some(Reading::Value(BTreeMap::new())));
        let process = r#"[{"pid":1,"user":null,"command":{"error":"gone"},"memory":5}]"#;
        assert!(matches!(read::<Vec<GpuProcess>>(process), Some(Reading::Value(list)) if list.len() == 1));
    }

    /// What is written is read, through text and through a value.
    fn survives<T: Serialize + for<'a> Deserialize<'a> + PartialEq + fmt::Debug>(reading: &Reading<T>) {
        let text = serde_json::to_string(reading).unwrap();
        assert_eq!(serde_json::from_str::<Reading<T>>(&text).unwrap(), *reading);
        let value = serde_json::to_value(reading).unwrap();
        assert_eq!(serde_json::from_value::<Reading<T>>(value).unwrap(), *reading);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(number: u64, signed: i64, eighths: i32, text: String) {
            survives(&Reading::Value(number));
            survives(&Reading::Value(signed));
            survives(&Reading::Value(f64::from(eighths) / 8.0));
            survives(&Reading::Value(text.clone()));
            survives(&Reading::Value(vec![text.clone()]));
            survives(&Reading::<u32>::failed(text));
        }
    }
}
