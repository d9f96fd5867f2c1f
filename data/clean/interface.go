package clean

import (
	"regexp"
	"strings"
)

const copyCode = "Copy code"

var (
	// controls are lines that ChatGPT's page shows under an answer.
	controls = map[string]bool{
		copyCode: true, "Regenerate response": true, "Stop generating": true, "Share Prompt": true,
	}
	// pageMark counts the versions of an answer: "2 / 3".
	pageMark = regexp.MustCompile(`^[1-9]\d? / [1-9]\d?$`)
	// copyCount is what a browser extension shows beside a block.
	copyCount = regexp.MustCompile(`Copy\d+ chars / \d+ words`)
	// plainLanguage is how a code block's head names its language.
	plainLanguage = regexp.MustCompile(`^[a-z][a-z0-9+#.-]{0,15}$`)
)

// visible is a line without white space and zero-width characters around it.
func visible(line string) string { return strings.TrimFunc(line, invisible) }

// stripInterface removes what the page of a chat service left in a text: lines
// that are exactly one of its controls, the count of versions ("2 / 2") at the
// beginning or among controls at the end, and the heads of code blocks. The
// inside of fenced code is left alone but for its first line.
func stripInterface(s string) (text string, removed bool) {
	lines := strings.Split(s, "\n")
	// What one step removes can bare what the next looks for; eight rounds are
	// more than any page needs.
	for range 8 {
		var heads, ends, marks bool
		lines, ends = cutControls(lines)
		lines, heads = cutHeads(lines)
		lines, marks = cutPageMarks(lines)
		if !heads && !ends && !marks {
			break
		}
		removed = true
	}
	if !removed {
		return s, false
	}
	return strings.TrimRight(strings.Join(lines, "\n"), " \t\r\n"), true
}

// cutControls removes controls at the end, and the count of versions if it
// stands before one that was removed.
func cutControls(lines []string) ([]string, bool) {
	end, removed := len(lines), false
	for i := end - 1; i >= 0; i-- {
		switch v := visible(lines[i]); {
		case v == "":
		case controls[v], removed && pageMark.MatchString(v):
			end, removed = i, true
		default:
			return lines[:end], removed
		}
	}
	return lines[:end], removed
}

// cutPageMarks removes counts of versions at the beginning, if other text
// follows them.
func cutPageMarks(lines []string) ([]string, bool) {
	removed := false
	for i, l := range lines {
		switch v := visible(l); {
		case v == "":
		case pageMark.MatchString(v):
			removed = true
		case removed:
			return lines[i:], true
		default:
			return lines, false
		}
	}
	return lines, false
}

// fence returns the fence that a line opens or closes, and what follows it.
func fence(line string) (mark, info string) {
	t := strings.TrimLeft(line, " \t")
	n := len(t) - len(strings.TrimLeft(t, "`"))
	if n < 3 {
		n = len(t) - len(strings.TrimLeft(t, "~"))
	}
	if n < 3 {
		return "", ""
	}
	return t[:n], strings.TrimSpace(t[n:])
}

// cutHeads removes heads of code blocks: "Copy code" behind a fence or on a line
// of its own, with the language before it, and counts of what was copied.
func cutHeads(lines []string) ([]string, bool) {
	out := make([]string, 0, len(lines))
	removed := false
	open := "" // the fence of the block that a line is in
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		mark, info := fence(line)
		switch {
		case open != "":
			if closes(line, open) {
				open = ""
			}
		case mark != "" && !strings.Contains(info, "`"):
			open = mark
			head, first, cut := cutFenceHead(line, info, lines[i+1:])
			if !cut {
				break
			}
			removed = true
			if first != nil {
				i++
			}
			if blankLine := first == nil || visible(*first) == ""; blankLine && i+1 < len(lines) && closes(lines[i+1], open) {
				open = "" // nothing but a head was in it
				i++
				continue
			}
			line = head
			if first != nil && visible(*first) != "" {
				line += "\n" + *first
			}
		case visible(line) == copyCode:
			removed = true
			if n := len(out); n > 0 && plainLanguage.MatchString(out[n-1]) && (n == 1 || endsParagraph(out[n-2])) {
				out = out[:n-1]
			}
			continue
		case copyCount.MatchString(line):
			removed = true
			if line = copyCount.ReplaceAllString(line, ""); visible(line) == "" {
				continue
			}
		}
		out = append(out, line)
	}
	if !removed {
		return lines, false
	}
	return strings.Split(strings.Join(out, "\n"), "\n"), true
}

// endsParagraph reports whether a code block may begin behind a line.
func endsParagraph(line string) bool {
	v := visible(line)
	return v == "" || strings.HasSuffix(v, ":")
}

// closes reports whether a line is the end of a block that mark opened.
func closes(line, mark string) bool {
	m, info := fence(line)
	return m != "" && m[0] == mark[0] && len(m) >= len(mark) && info == ""
}

// cutFenceHead takes "Copy code" off a fence and off the first line behind it;
// first is what is left of that, nil if it is as it was. A language before it
// moves to the fence, unless that has one.
func cutFenceHead(line, info string, rest []string) (head string, first *string, cut bool) {
	bare := info
	for strings.HasSuffix(bare, copyCode) {
		bare = strings.TrimSpace(strings.TrimSuffix(bare, copyCode))
	}
	if bare != info {
		line = line[:strings.LastIndex(line, info)] + bare
		cut = true
	}
	if len(rest) == 0 || !codeHeader.MatchString(rest[0]) {
		return line, nil, cut
	}
	language, code := cutHeader(rest[0])
	if bare == "" {
		line += language
	}
	return line, &code, true
}
