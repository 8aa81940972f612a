//! The documents hang together: the book has all of them, their links lead somewhere, indexes are
//! complete, and the forge's workflow calls the script that anyone can run.

use std::collections::BTreeSet;

use super::documents::{files, lines, read, root};

/// `scripts/book` makes a page of what the summary names, and of nothing else.
#[test]
fn every_document_is_in_the_book() {
    let folder = root().join("docs");
    let summary = read("docs/SUMMARY.md");
    let pages = summary.lines().filter_map(|line| line.split_once("](")?.1.strip_suffix(')'));
    let named: Vec<_> = pages.map(|page| folder.join(page)).collect();
    let mut documents = files(&folder, ".md");
    documents.retain(|page| !page.ends_with("SUMMARY.md"));
    assert_eq!(named.len(), documents.len(), "each once");
    assert_eq!(named.iter().collect::<BTreeSet<_>>(), documents.iter().collect());
    for page in files(&folder.join("decisions"), ".md") {
        let title = read(&page);
        let title = title.lines().next().unwrap().trim_start_matches("# ");
        assert!(summary.contains(&format!("[{title}](decisions/")), "{title}");
    }
}

/// A forge runs what anybody can run, and nothing else.
#[test]
fn the_workflow_of_the_forge_calls_the_script() {
    let steps = read(".github/workflows/ci.yml");
    let run =
        lines(&steps).into_iter().filter(|line| line.contains(".ci/run") && !line.starts_with('#'));
    assert_eq!(run.collect::<Vec<_>>(), ["- run: .ci/run"]);
}

#[test]
fn every_decision_is_in_the_index() {
    let folder = root().join("docs/decisions");
    let index = read("docs/decisions/README.md");
    let mut seen = 0;
    for page in files(&folder, ".md").iter().filter(|page| !page.ends_with("README.md")) {
        let name = page.file_name().unwrap().to_str().unwrap();
        let text = read(page);
        let title = text.lines().next().unwrap().trim_start_matches("# ");
        assert!(index.contains(&format!("]({name}): {title}\n")), "{name}: {title}");
        for part in ["**Decision.**", "**Consequence.**"] {
            assert!(text.contains(&format!("\n\n{part} ")), "{name}: {part}");
        }
        seen += 1;
    }
    assert!(seen >= 20, "{seen}");
}

#[test]
fn links_lead_somewhere() {
    let mut documents = files(&root().join("docs"), ".md");
    documents.extend(files(&root().join(".github"), ".md"));
    let names = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"];
    documents.extend(names.map(|name| root().join(name)));
    documents.push(root().join("crates/fairlock-cli/README.md"));
    let mut seen = 0;
    for document in documents {
        let text = read(&document);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = document.parent().unwrap().join(path);
            let target = if path.is_empty() { document.clone() } else { target };
            assert!(target.exists(), "{}: {link}", document.display());
            if !heading.is_empty() {
                let headings = read(&target);
                let mut headings = headings.lines().filter_map(|line| line.strip_prefix('#'));
                assert!(
                    headings.any(|line| anchor(line) == heading),
                    "{}: {link}",
                    document.display()
                );
            }
            seen += 1;
        }
    }
    assert!(seen > 10);
}

/// The web anchor of a heading.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}
