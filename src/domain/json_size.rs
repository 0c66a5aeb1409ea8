//! How much stands in a JSON text: looked at before any of it is read, so that a few bytes can't be made to take many
//! times that in memory.

/// The most that may stand in a text.
#[derive(Debug, Clone, Copy)]
pub struct Most {
    /// Lists within lists.
    pub depth: usize,
    /// Values: numbers, texts, lists and objects.
    pub values: usize,
    /// Objects, which take the most memory each.
    pub objects: usize,
    /// Bytes of one text, as they are written.
    pub text: usize,
    /// Values in the whole's own list.
    pub elements: usize,
    /// Values within one of these.
    pub element_values: usize,
}

impl Most {
    /// Looks through a JSON text, which need not be one. Takes no memory.
    ///
    /// # Errors
    /// Says of what there is too much.
    pub fn check(&self, json: &[u8]) -> Result<(), String> {
        let (mut depth, mut values, mut objects) = (0usize, 0usize, 0usize);
        // values of the whole's own list, and how many values there were at the last one's end
        let (mut elements, mut before) = (1usize, 1usize);
        let mut bytes = json.iter().enumerate();
        while let Some((at, byte)) = bytes.next() {
            match byte {
                b'"' => {
                    let mut end = json.len();
                    while let Some((at, byte)) = bytes.next() {
                        match byte {
                            b'\\' => drop(bytes.next()),
                            b'"' => {
                                end = at;
                                break;
                            }
                            _ => {}
                        }
                    }
                    if end - at > self.text {
                        return Err(format!("a text of more than {} bytes", self.text));
                    }
                }
                b'[' | b'{' => {
                    (depth, values) = (depth + 1, values + 1);
                    objects += usize::from(*byte == b'{');
                }
                b']' | b'}' => depth = depth.saturating_sub(1),
                b',' => {
                    values += 1;
                    if depth == 1 {
                        (elements, before) = (elements + 1, values);
                    }
                }
                _ => {}
            }
            if depth > self.depth {
                return Err(format!("lists within lists, more than {} deep", self.depth));
            }
            if values > self.values {
                return Err(format!("more than {} values", self.values));
            }
            if objects > self.objects {
                return Err(format!("more than {} objects", self.objects));
            }
            if elements > self.elements {
                return Err(format!("a list of more than {}", self.elements));
            }
            if values.saturating_sub(before) > self.element_values {
                return Err(format!("more than {} values in one of a list", self.element_values));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_bounded_as_a_whole_and_in_each_of_its_values() {
        let most = Most { depth: 8, values: 100, objects: 10, text: 10, elements: 4, element_values: 3 };
        let check = |text: &str| most.check(text.as_bytes());
        assert_eq!(check("[1,2,3,4]"), Ok(()));
        assert!(check("[1,2,3,4,5]").unwrap_err().contains("a list of more than 4"));
        assert_eq!(check("[[1,2,3],[1,2,3]]"), Ok(()));
        assert!(check("[0,[1,2,3,4]]").unwrap_err().contains("more than 3 values in one"));
        // commas within a text are no commas
        assert_eq!(check(r#"[",,,,,,",1]"#), Ok(()));
    }
}
