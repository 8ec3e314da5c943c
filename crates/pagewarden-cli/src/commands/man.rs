//! `pagewarden man`: the manual, from the command line's own definition.
//!
//! clap_mangen fills what stands behind the options into lines, so that commands and their comments
//! run into each other. Those paragraphs are written here, as they stand in the source.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context as _;
use clap_mangen::Man as Page;

use crate::args::{Man, help};
use crate::exit::Exit;

/// Writes a page for the program and one for each command.
pub fn run(arguments: &Man) -> anyhow::Result<Exit> {
    fs::create_dir_all(&arguments.folder)
        .with_context(|| format!("cannot create {}", arguments.folder.display()))?;
    let mut program = help::command().disable_help_subcommand(true);
    program.build();
    let write = if arguments.markdown { super::markdown::write_all } else { write_all };
    write(&program, &arguments.folder)
        .with_context(|| format!("cannot write into {}", arguments.folder.display()))?;
    Ok(Exit::Fine)
}

fn write_all(command: &clap::Command, folder: &Path) -> io::Result<()> {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        write_all(inner, folder)?;
    }
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let mut text = Vec::new();
    write_page(command, name, &mut text)?;
    fs::write(folder.join(format!("{name}.1")), text)
}

fn write_page(command: &clap::Command, name: &str, out: &mut dyn Write) -> io::Result<()> {
    let page = Page::new(command.clone())
        .title(name.to_uppercase())
        .source(format!("pagewarden {}", pagewarden::VERSION))
        .manual("Pagewarden");
    page.render_title(out)?;
    page.render_name_section(out)?;
    page.render_synopsis_section(out)?;
    page.render_description_section(out)?;
    page.render_options_section(out)?;
    if command.has_subcommands() {
        page.render_subcommands_section(out)?;
    }
    let behind = command.get_after_long_help().or(command.get_after_help());
    let text = behind.map(ToString::to_string).unwrap_or_default();
    out.write_all(literal(&text).as_bytes())
}

/// Paragraphs that begin with a word and a colon are sections; their lines stay lines.
fn literal(text: &str) -> String {
    let mut page = String::new();
    for paragraph in text.split("\n\n") {
        let (head, rest) = paragraph.split_once(':').unwrap_or(("", paragraph));
        let title = match head.trim() {
            "Example" | "Examples" => "EXAMPLES",
            "Exit status" => "EXIT STATUS",
            _ => "",
        };
        let lines = if title.is_empty() { paragraph } else { rest };
        if !title.is_empty() {
            page.push_str(&format!(".SH \"{title}\"\n"));
        }
        page.push_str(".nf\n");
        for line in lines.trim_matches('\n').lines() {
            // A dot or a quote at the beginning would be a request.
            let line =
                line.strip_prefix("  ").unwrap_or(line).replace('\\', "\\e").replace('-', "\\-");
            page.push_str(&format!("\\&{line}\n"));
        }
        page.push_str(".fi\n");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_stand_line_by_line_and_the_footer_has_the_version() {
        let folder = tempfile::tempdir().unwrap();
        run(&Man { folder: folder.path().to_owned(), markdown: false }).unwrap();
        let page = fs::read_to_string(folder.path().join("pagewarden-check.1")).unwrap();
        assert!(page.contains(&format!("\"pagewarden {}\"", pagewarden::VERSION)), "{page}");
        assert!(page.contains("PAGEWARDEN\\-CHECK") || page.contains("PAGEWARDEN-CHECK"), "{page}");
        assert!(!page.contains(".SH EXTRA"), "{page}");
        let (_, examples) = page.split_once(".SH \"EXAMPLES\"\n.nf\n").unwrap();
        let (examples, _) = examples.split_once(".fi\n").unwrap();
        assert!(examples.lines().count() >= 9, "{examples}");
        for line in examples.lines() {
            let line = line.strip_prefix("\\&").unwrap();
            assert!(line.contains("pagewarden check"), "{line}");
        }
        assert!(page.contains(".SH \"EXIT STATUS\""), "{page}");
        for name in ["pagewarden", "pagewarden-unpack", "pagewarden-cost"] {
            let page = fs::read_to_string(folder.path().join(format!("{name}.1"))).unwrap();
            assert!(page.contains(".SH NAME") && page.contains(".SH \"EXAMPLES\""), "{name}");
        }
    }

    #[test]
    fn what_users_build_is_stripped() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        for manifest in ["Cargo.toml", "ext/sqlite/Cargo.toml"] {
            let text = fs::read_to_string(Path::new(root).join(manifest)).unwrap();
            let (_, release) = text.split_once("[profile.release]\n").unwrap();
            let release = release.split("\n[").next().unwrap();
            assert!(release.contains("\nstrip = true"), "{manifest}: {release}");
        }
    }
}
