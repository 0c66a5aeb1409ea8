//! Numbers as people read them. Fixed widths are the caller's business; these give the digits and unit.

use std::time::Duration;

/// `0-2, 5` for 0, 1, 2, 5.
pub fn ranges(numbers: impl IntoIterator<Item = u32>) -> String {
    ranges_joined(numbers, ", ")
}

/// The same with another separator.
pub fn ranges_joined(numbers: impl IntoIterator<Item = u32>, separator: &str) -> String {
    let mut spans: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match spans.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => spans.push((number, number)),
        }
    }
    let texts = spans.iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") });
    texts.collect::<Vec<_>>().join(separator)
}

/// `1 host`, `2 hosts`, `2 processes`.
pub fn counted(count: impl TryInto<u64>, one: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    let end = match (count == 1, one.ends_with('s')) {
        (true, _) => "",
        (false, true) => "es",
        (false, false) => "s",
    };
    format!("{count} {one}{end}")
}

/// Bytes in binary steps with three digits at most before the unit: `0.4 G`, `131 G`, `1.9 T`.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 6] = ["B", "K", "M", "G", "T", "P"];
    let mut scaled = value as f64;
    let mut unit = 0;
    while scaled >= 999.5 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    if unit > 0 && scaled < 9.95 {
        format!("{scaled:.1} {}", UNITS[unit])
    } else {
        format!("{scaled:.0} {}", UNITS[unit])
    }
}

/// Reads what people write for a size: `268435456`, `256M`, `1.5 GiB`; a unit is a power of 1024.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let power = match unit.trim().to_ascii_uppercase().trim_end_matches('B').trim_end_matches('I') {
        "" => 0,
        "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        _ => return None,
    };
    let bytes = number.parse::<f64>().ok()? * 1024f64.powi(power);
    (bytes < 1e18).then_some(bytes as u64)
}

/// Two amounts in one unit, the larger one's: `0.4/141 G`.
pub fn bytes_of(used: u64, total: u64) -> String {
    let whole = bytes(total);
    let (_, unit) = whole.split_once(' ').unwrap_or((&whole, "B"));
    let power = ["B", "K", "M", "G", "T", "P"].iter().position(|u| *u == unit).unwrap_or(0);
    let scaled = used as f64 / 1024f64.powi(power as i32);
    let used_text = if power > 0 && scaled < 9.95 { format!("{scaled:.1}") } else { format!("{scaled:.0}") };
    format!("{used_text}/{whole}")
}

/// A length of time as people write it: `20ms`, `90s`, `30m`, `1.5h`, `2d`; a number alone means seconds.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit.trim() {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    let seconds = number.parse::<f64>().ok()? * scale;
    // a century is a misprint
    (seconds < 3.2e9).then(|| Duration::from_secs_f64(seconds))
}

/// The same for an age, whose unit must be written: of `30` alone people mean days.
pub fn parse_age(text: &str) -> Option<Duration> {
    let age = parse_duration(text)?;
    (age.is_zero() || text.ends_with(|c: char| c.is_ascii_alphabetic())).then_some(age)
}

/// A length of time: `0.4 ms`, `61 ms`, `1.2 s`, `02:14`, `3h05`, `2d 4h`.
pub fn duration_us(micros: u64) -> String {
    let seconds = micros / 1_000_000;
    match micros {
        0..9_950 => format!("{:.1} ms", micros as f64 / 1e3),
        9_950..999_500 => format!("{:.0} ms", micros as f64 / 1e3),
        999_500..59_950_000 => format!("{:.1} s", micros as f64 / 1e6),
        _ if seconds < 3600 => format!("{:02}:{:02}", seconds / 60, seconds % 60),
        _ if seconds < 86_400 => format!("{}h{:02}", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// The same where microseconds matter: `40 µs` for what is shorter than 0.1 ms.
pub fn short_duration_us(micros: u64) -> String {
    if (1..100).contains(&micros) { format!("{micros} µs") } else { duration_us(micros) }
}

/// A metric in at most five digits.
pub fn metric(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        small if small < 0.001 => format!("{value:.2e}"),
        small if small < 10.0 => format!("{value:.4}"),
        _ => format!("{value:.2}"),
    }
}

/// So many a second: `0.8`, `12,410`.
pub fn rate(value: f64) -> String {
    match value {
        0.0 => return "0".to_owned(),
        tiny if tiny < 0.095 => return format!("{tiny:.0e}"),
        small if small < 9.95 => return format!("{small:.1}"),
        _ => {}
    }
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A text in a column of so many columns, harmless to a terminal.
pub fn padded(text: &str, columns: usize) -> String {
    use unicode_width::UnicodeWidthStr;
    let text = middle_cut(&super::text::sanitize(text), columns);
    let pad = columns.saturating_sub(text.width());
    format!("{text}{}", " ".repeat(pad))
}

/// Cuts the middle out of `text` so that it takes at most `width` columns: `very-lo…-name`.
pub fn middle_cut(text: &str, width: usize) -> String {
    use unicode_segmentation::UnicodeSegmentation;
    use unicode_width::UnicodeWidthStr;
    if text.width() <= width {
        return text.to_owned();
    }
    if width == 0 {
        return String::new();
    }
    let room = width - 1;
    let (mut head, mut tail) = (String::new(), Vec::new());
    let mut used = 0;
    for piece in text.graphemes(true) {
        if used + piece.width() > room.div_ceil(2) {
            break;
        }
        used += piece.width();
        head.push_str(piece);
    }
    for piece in text.graphemes(true).rev() {
        if used + piece.width() > room {
            break;
        }
        used += piece.width();
        tail.push(piece);
    }
    tail.reverse();
    format!("{head}…{}", tail.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_follow_each_other_are_ranges() {
        assert_eq!(ranges([]), "");
        assert_eq!(ranges([0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
        assert_eq!(ranges_joined([0, 1, 2, 5], ","), "0-2,5");
        assert_eq!(ranges([u32::MAX - 1, u32::MAX]), "4294967294-4294967295");
        assert_eq!(ranges([u32::MAX, 0]), "4294967295, 0");
    }

    #[test]
    fn rates_are_grouped_and_small_ones_are_not_nothing() {
        let said = [0.0, 0.04, 0.8, 9.96, 999.4, 12_410.2, 1e6].map(rate);
        assert_eq!(said, ["0", "4e-2", "0.8", "10", "999", "12,410", "1,000,000"]);
    }

    #[test]
    fn lengths_of_time_are_read_as_people_write_them() {
        assert_eq!(["30", "30d", "0"].map(|text| parse_age(text).is_some()), [false, true, true]);
        let read = ["90", "90s", "30m", "1.5h", "2 d", "0", "0.25s", "20 ms"].map(parse_duration);
        let millis = [90_000, 90_000, 1_800_000, 5_400_000, 172_800_000, 0, 250, 20];
        assert_eq!(read, millis.map(|ms| Some(Duration::from_millis(ms))));
        for bad in ["", "m", "1w", "-1", "1m2", "1e3", "99999999d", "never"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let sizes = ["4096", "256M", "256 MiB", "1.5g", "2TB", "0"].map(parse_bytes);
        assert_eq!(sizes, [4096, 256 << 20, 256 << 20, 3 << 29, 2 << 40, 0].map(Some));
        for bad in ["", "M", "1X", "-1", "1M2", "9999999T", "1e3", "BB"] {
            assert_eq!(parse_bytes(bad), None, "{bad}");
        }
    }

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1.0 K");
        assert_eq!(bytes(141 << 30), "141 G");
        assert_eq!(bytes(1128 << 30), "1.1 T");
        assert_eq!(bytes_of(400 << 20, 141 << 30), "0.4/141 G");
        assert_eq!(bytes_of(131 << 30, 141 << 30), "131/141 G");
        assert_eq!(duration_us(420), "0.4 ms");
        assert_eq!(duration_us(61_200), "61 ms");
        assert_eq!([0, 1, 99, 100].map(short_duration_us), ["0.0 ms", "1 µs", "99 µs", "0.1 ms"]);
        assert_eq!(duration_us(134_000_000), "02:14");
        assert_eq!(duration_us(11_100_000_000), "3h05");
    }

    #[test]
    fn long_names_lose_their_middle() {
        assert_eq!(middle_cut("gpu-a", 8), "gpu-a");
        assert_eq!(middle_cut("tensorflow2_mnist.py", 11), "tenso…st.py");
        assert_eq!(middle_cut("日本語日本語", 5), "日…語");
        assert_eq!(middle_cut("abc", 0), "");
    }

    #[test]
    fn a_column_is_as_wide_as_it_says_whatever_stands_in_it() {
        use unicode_width::UnicodeWidthStr;
        assert_eq!(padded("微调大语言模型", 18), "微调大语言模型    ");
        assert_eq!(padded("微调大语言模型七十亿参数", 10).width(), 10);
    }
}
