//! What holds for all values, and that no text makes a reader panic.

use pagewarden_db::location::Location;
use pagewarden_db::row::number::{Decimal, compare, plain, write_float, write_integer};
use pagewarden_db::row::{Row, Tag, json, time};
use pagewarden_db::table::Form;
use proptest::prelude::*;

fn of_float(value: f64) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_float(&mut bytes, value);
    bytes
}

fn of_integer(value: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_integer(&mut bytes, value < 0, value.unsigned_abs());
    bytes
}

fn of_text(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    Decimal::parse(text.as_bytes())?.write(&mut bytes);
    Some(bytes)
}

proptest! {
    /// Two doubles have one form only if they are equal, and each is found again in it.
    #[test]
    fn doubles_keep_every_bit(one in any::<f64>(), other in any::<f64>()) {
        prop_assume!(one.is_finite() && other.is_finite());
        prop_assert_eq!(of_float(one) == of_float(other), one == other);
        let again: f64 = plain(&of_float(one)).unwrap().parse().unwrap();
        prop_assert_eq!(again, one);
    }

    #[test]
    fn whole_numbers_have_the_form_of_their_digits(number in any::<i64>(), zeros in 0_usize..5) {
        prop_assert_eq!(Some(of_integer(number)), of_text(&number.to_string()));
        let written = format!("{number}.{}", "0".repeat(zeros));
        prop_assert_eq!(Some(of_integer(number)), of_text(&written));
        prop_assert_eq!(plain(&of_integer(number)), Some(number.to_string()));
    }

    #[test]
    fn order_is_that_of_numbers(one in any::<i64>(), other in -1000_i64..1000) {
        let (one_form, other_form) = (of_integer(one), of_integer(other));
        prop_assert_eq!(compare(&one_form, &other_form), Some(one.cmp(&other)));
    }

    /// A form that is read as a decimal is itself.
    #[test]
    fn forms_of_decimals_are_stable(text in "-?[0-9]{0,30}\\.?[0-9]{0,30}(e-?[0-9]{1,3})?") {
        if let Some(form) = of_text(&text) {
            prop_assert_eq!(of_text(std::str::from_utf8(&form).unwrap()), Some(form));
        }
    }

    #[test]
    fn moments_are_found_again(micros in -60_000_000_000_000_000_i64..250_000_000_000_000_000) {
        let mut text = Vec::new();
        time::write_moment(&mut text, micros);
        prop_assert_eq!(time::parse_moment(&text), Some(micros));
    }

    #[test]
    fn forms_of_json_are_stable(text in "[\\[\\]{}:,\"a0-9. e-]{0,40}") {
        if let Some(form) = json::canonical(text.as_bytes()) {
            prop_assert_eq!(json::canonical(&form), Some(form));
        }
    }

    /// Whatever a column says it is, its values are taken, and found again as one field.
    #[test]
    fn no_value_makes_a_form_panic(value in proptest::collection::vec(any::<u8>(), 0..60)) {
        use Form::{Any, Bytes, Date, Json, Moment, Number, Text, Time, Uuid};
        for form in [Any, Bytes, Date, Json, Moment, Number, Text, Time, Uuid] {
            for tag in [Tag::Text, Tag::Bytes] {
                let mut row = Row::new();
                form.append(&mut row, tag, &value);
                row.null();
                prop_assert_eq!(row.count(), 2);
                prop_assert_eq!(row.field(1).unwrap().tag, Tag::Null);
            }
        }
    }

    /// No URL makes the reader panic, and what is shown of one never holds its password.
    #[test]
    fn urls_are_read_or_refused(
        scheme in "(postgres|mysql|sqlite|parquet|x)?:?/{0,3}",
        password in "[a-zA-Z0-9@:/?#%]{6,12}",
        rest in "[a-z@:/?&=%\\[\\]0-9]{0,30}",
    ) {
        let url = format!("{scheme}ann:SECRET{password}SECRET@{rest}");
        match Location::parse(&url) {
            Ok(location) if !location.is_file() && location.password_in_url => {
                let shown = format!("{location} {location:?}");
                let secret = location.password.as_ref().unwrap().reveal();
                // Only where all of it was taken for the password; else a part is a host.
                let whole = secret.starts_with("SECRET") && secret.ends_with("SECRET");
                prop_assert!(!whole || !shown.contains("SECRET"), "{}", shown);
            }
            Ok(_) => {}
            Err(error) => prop_assert!(!error.to_string().contains("SECRET"), "{}", error),
        }
    }
}
