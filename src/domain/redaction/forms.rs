//! The forms in which programs write a secret value: a log in JSON, an address, a trace of a shell, a header in base64. Pure.

use std::fmt::Write;

use base64ct::{Base64Unpadded, Base64UrlUnpadded, Encoding};

use super::LEAST;
use crate::domain::log_text::floor_boundary;

/// A longer value is looked for piece by piece, so that each piece fits into what is read at once.
const LONGEST: usize = 4096;

/// All forms of a value that are looked for, none shorter than [`LEAST`] and none longer than [`LONGEST`].
pub(super) fn of(value: &str) -> Vec<String> {
    let value = value.trim();
    let mut forms: Vec<String> = value.lines().flat_map(|line| of_line(line.trim())).collect();
    // a value of fewer characters is not looked for in any form
    if value.len() >= LEAST {
        forms.extend((0..3).flat_map(|before| in_base64(value, before)));
    }
    let mut pieces: Vec<String> = forms.iter().flat_map(|form| cut(form)).collect();
    pieces.retain(|piece| piece.len() >= LEAST);
    pieces.sort_unstable();
    pieces.dedup();
    pieces
}

fn of_line(line: &str) -> Vec<String> {
    if line.len() < LEAST {
        return Vec::new();
    }
    let json = line.chars().fold(String::new(), |json, c| json + &in_json(c));
    let ascii = json.chars().fold(String::new(), |ascii, c| match c {
        '\0'..='\u{7f}' => ascii + c.encode_utf8(&mut [0; 4]),
        // as Python's json writes it, in halves where it takes two
        c => c.encode_utf16(&mut [0; 2]).iter().fold(ascii, |ascii, half| ascii + &format!("\\u{half:04x}")),
    });
    let mut forms = vec![line.to_owned(), json, ascii, line.replace('\'', r"'\''")];
    for kept in ["", "/"] {
        let upper = in_address(line, kept);
        forms.push(lower_hex(&upper));
        forms.push(upper.replace("%20", "+"));
        forms.push(upper);
    }
    forms
}

fn in_json(c: char) -> String {
    match c {
        '"' => "\\\"".to_owned(),
        '\\' => "\\\\".to_owned(),
        '\t' => "\\t".to_owned(),
        c if c < ' ' => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    }
}

/// With `%2F` and the like for all but plain letters and what is `kept`.
fn in_address(line: &str, kept: &str) -> String {
    let mut address = String::new();
    for byte in line.bytes() {
        let letter = char::from(byte);
        if letter.is_ascii_alphanumeric() || "-_.~".contains(letter) || kept.contains(letter) {
            address.push(letter);
        } else {
            // writing to a string does not fail
            let _ = write!(address, "%{byte:02X}");
        }
    }
    address
}

fn lower_hex(address: &str) -> String {
    let mut parts = address.split('%');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |lower, part| {
        let (digits, rest) = part.split_at(part.len().min(2));
        lower + "%" + &digits.to_ascii_lowercase() + rest
    })
}

/// As it stands in the base64 of a text in which so many bytes (modulo 3) come before it: the letters that depend on the
/// value alone.
fn in_base64(value: &str, before: usize) -> [String; 2] {
    let bytes = [vec![0; before], value.as_bytes().to_vec()].concat();
    let (first, end) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
    [Base64Unpadded::encode_string(&bytes), Base64UrlUnpadded::encode_string(&bytes)]
        .map(|text| text.get(first..end).unwrap_or_default().to_owned())
}

/// Pieces of at most [`LONGEST`] bytes, the last as long as the others where there are several.
fn cut(form: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut rest = form;
    while rest.len() > LONGEST {
        let (piece, behind) = rest.split_at(floor_boundary(rest, LONGEST));
        pieces.push(piece.to_owned());
        rest = behind;
    }
    if pieces.is_empty() {
        pieces.push(form.to_owned());
    } else if !rest.is_empty() {
        pieces.push(form.split_at(floor_boundary(form, form.len() - LONGEST)).1.to_owned());
    }
    pieces
}
