//! Text as a value in other programs' formats.

/// A cell of CSV (RFC 4180), in quotes where it needs them.
pub fn csv_cell(text: &str) -> String {
    if text.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// A label's value in Prometheus' text format, with its quotes.
pub fn prometheus_label(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_break_neither_format() {
        assert_eq!(prometheus_label("a\"b\\c\nd"), "\"a\\\"b\\\\c\\nd\"");
        assert_eq!(["a,b", "a\"b", "a b"].map(csv_cell), ["\"a,b\"", "\"a\"\"b\"", "a b"]);
    }
}
