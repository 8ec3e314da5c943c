//! The answers on a terminal.

use std::fmt::Write as _;

use pagewarden::report::colours::Colours;
use pagewarden::words::printable;

use super::Surveyed;
use super::answers::Answer;

/// The column in which answers begin.
const INDENT: usize = 13;
/// Wider lines are hard to read.
const WIDTH_MAX: usize = 100;

/// One screen.
pub(super) fn screen(
    surveyed: &Surveyed,
    answers: &[Answer],
    width: usize,
    colours: Colours,
) -> String {
    let mut text = lines(&surveyed.path.to_string_lossy(), answers, width, colours);
    let word = surveyed.verdict.name();
    if colours.0 {
        text = text.replacen(
            &format!("Is it sound  {word}"),
            &format!("Is it sound  {}", colours.verdict(surveyed.verdict)),
            1,
        );
    }
    text
}

/// Answers below the name of what they are about.
pub(super) fn lines(path: &str, answers: &[Answer], width: usize, colours: Colours) -> String {
    let width = width.clamp(40, WIDTH_MAX);
    let mut text = format!("{}\n\n", printable(path));
    for answer in answers {
        for (number, line) in answer.lines.iter().enumerate() {
            let title = if number == 0 { answer.title } else { "" };
            if answer.is_command && number == 0 {
                // Never wrapped: it is to be copied.
                let _ = writeln!(text, "{title:<INDENT$}{}", colours.paint(line, "1"));
            } else {
                wrapped(&mut text, title, line, width);
            }
        }
    }
    text
}

fn wrapped(text: &mut String, title: &str, sentence: &str, width: usize) {
    let mut line = format!("{title:<INDENT$}");
    let mut is_begun = false;
    // A number and its percent sign stay together.
    let sentence = sentence.replace(" %", "\u{a0}%");
    for word in sentence.split([' ', '\n']).filter(|word| !word.is_empty()) {
        let more = word.chars().count() + usize::from(is_begun);
        if is_begun && line.chars().count() + more > width {
            let _ = writeln!(text, "{line}");
            line = " ".repeat(INDENT);
            is_begun = false;
        }
        if is_begun {
            line.push(' ');
        }
        line.push_str(&word.replace('\u{a0}', " "));
        is_begun = true;
    }
    let _ = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_answers_go_on_below_their_beginning() {
        let mut text = String::new();
        wrapped(&mut text, "Strength", "one two three four five six seven", 30);
        assert_eq!(
            text,
            "Strength     one two three\n             four five six\n             seven\n"
        );
        let mut text = String::new();
        wrapped(&mut text, "", "twelve letters 98.3 %", 32);
        assert!(text.ends_with("\n             98.3 %\n"), "{text}");
    }
}
