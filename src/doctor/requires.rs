//! What an image of NVIDIA's demands of the driver before its containers start (`NVIDIA_REQUIRE_CUDA`), held against what is there.
//! Pure. `cuda>=12.4 brand=tesla,driver>=470,driver<471`: one of the alternatives, which spaces part, must hold with all of its parts.

use std::cmp::Ordering;

use super::compare::numbers;

/// What is there.
#[derive(Debug, Clone, Copy)]
pub(super) struct There<'a> {
    /// The newest CUDA that the driver serves.
    pub(super) cuda: &'a str,
    /// The driver.
    pub(super) driver: Option<&'a str>,
}

/// Whether one of the alternatives holds. What is not known here, as a brand, is taken to.
pub(super) fn holds(requires: &str, there: There<'_>) -> bool {
    let mut alternatives = requires.split_whitespace().peekable();
    alternatives.peek().is_none()
        || alternatives.any(|all| all.split(',').all(|part| part_holds(part, there)))
}

/// The CUDA that is asked for first, for people: `12.4`.
pub(super) fn cuda(requires: &str) -> Option<&str> {
    let first = requires.split_whitespace().next()?;
    let part = first.split(',').find(|part| part.starts_with("cuda"))?;
    Some(part.trim_start_matches(|c: char| !c.is_ascii_digit())).filter(|version| !version.is_empty())
}

fn part_holds(part: &str, there: There<'_>) -> bool {
    let end = part.find(['<', '>', '=', '!']).unwrap_or(part.len());
    let (name, rest) = part.split_at(end);
    let version = rest.trim_start_matches(['<', '>', '=', '!']);
    let sign = &rest[..rest.len() - version.len()];
    let own = match name {
        "cuda" => Some(there.cuda),
        "driver" => there.driver,
        _ => None,
    };
    let Some(order) = own.and_then(|own| compared(own, version)) else { return true };
    match sign {
        ">=" => order != Ordering::Less,
        ">" => order == Ordering::Greater,
        "<=" => order != Ordering::Greater,
        "<" => order == Ordering::Less,
        "!=" => order != Ordering::Equal,
        _ => order == Ordering::Equal,
    }
}

/// By as many numbers as the wanted one has: of `470` the driver 470.57 is one.
fn compared(own: &str, wanted: &str) -> Option<Ordering> {
    let (own_major, own_minor) = numbers(own)?;
    let (major, minor) = numbers(wanted)?;
    Some(if wanted.contains('.') {
        (own_major, own_minor).cmp(&(major, minor))
    } else {
        own_major.cmp(&major)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_alternative_with_all_of_its_parts_is_enough() {
        let of =
            |requires: &str, cuda: &str, driver: &str| holds(requires, There { cuda, driver: Some(driver) });
        let image = "cuda>=12.4 brand=tesla,driver>=470,driver<471 brand=tesla,driver>=525,driver<526";
        assert!(of(image, "12.4", "550.54.14") && of(image, "13.0", "580.65"));
        assert!(!of(image, "12.2", "535.104.05"));
        assert!(of(image, "12.0", "525.60.13"), "forward compatibility is for that branch");
        assert!(of(image, "11.4", "470.57.02"));
        assert!(of("", "11.4", "470.57.02"));
        assert!(!of("cuda>=12.4", "12.3", "545.23") && of("cuda>=11", "11.0", "450.51"));
        assert_eq!((cuda(image), cuda("brand=tesla")), (Some("12.4"), None));
    }
}
