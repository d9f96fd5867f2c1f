package clean

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
)

const chatDiv = `<div class="markdown prose w-full break-words dark:prose-invert light">`

func TestMarkdown(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"paragraphs", `<p>One.</p><p>Two &amp; three &lt;b&gt; &#39;x&#39;</p>`, "One.\n\nTwo & three <b> 'x'"},
		{"breaks", `<p>a<br>b<br/>  c</p><br><p>d</p>`, "a\nb\n  c\n\nd"},
		{"line breaks of the source", "<p>a\n   b</p>\n\n  <p>c</p>", "a\nb\n\nc"},
		{"no escapes", `<p>snake_case *x* # 1. [y] ` + "`z`" + `</p>`, "snake_case *x* # 1. [y] `z`"},
		{"emphasis", `<p><strong>b</strong> <em>i</em> <b>b <i>both</i></b> <del>gone</del><strong> </strong></p>`, "**b** *i* **b *both*** ~~gone~~"},
		{"white space in emphasis", `<p>a<strong> b </strong>c</p>`, "a **b** c"},
		{"emphasis in itself", `<p><strong>a <b>b</b></strong></p>`, "**a b**"},
		{"headings", `<h1>One</h1><h3>Three <code>x</code></h3><h2></h2>`, "# One\n\n### Three `x`"},
		{"rule and quote", `<blockquote><p>a</p><p>b<br>c</p></blockquote><hr>`, "> a\n>\n> b\n> c\n\n---"},
		{"list", `<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul>`, "- a\n- b\n  - c"},
		{"numbered list", `<ol start="9"><li>a</li><li>b<br>c</li></ol>`, "9. a\n10. b\n    c"},
		{"list of paragraphs", `<ol><li><p>a</p><p>b</p></li><li><p>c</p></li></ol>`, "1. a\n\n   b\n\n2. c"},
		{"list in a list without an item", `<ul><li>a</li><ul><li>b</li></ul></ul>`, "- a\n  - b"},
		{"items without ends", `<ul><li>a<li>b<p>c</ul><p>d`, "- a\n\n- b\n\n  c\n\nd"},
		{"code in a list", `<ol><li><p>a</p><pre><code class="language-go">if x {
	y()
}
</code></pre></li></ol>`, "1. a\n\n   ```go\n   if x {\n   \ty()\n   }\n   ```"},
		{"code block of the page", `<pre><div class="bg-black"><div class="flex"><span>python</span><button class="flex"><svg><path d="M1"></path></svg>Copy code</button></div><div><code class="!whitespace-pre hljs language-python"><span class="hljs-keyword">def</span> f(a_b):
    <span class="x">return</span> a_b &lt; 1
</code></div></div></pre>`, "```python\ndef f(a_b):\n    return a_b < 1\n```"},
		{"code block whose head ran together", `<pre>pythonCopy codeprint(1)
  x</pre>`, "```python\nprint(1)\n  x\n```"},
		{"code block with a head and no class", `<pre><div><span>csharp</span>Copy code</div><code>int x;</code></pre>`, "```csharp\nint x;\n```"},
		{"empty code block", `<p>a</p><pre><div>Copy code</div><code></code></pre>`, "a"},
		{"code that holds fences", "<pre><code>```go\nx\n```</code></pre>", "````\n```go\nx\n```\n````"},
		{"code in a line", "<p><code>a_b</code> <code>x`y</code> <code>`z`</code></p>", "`a_b` ``x`y`` `` `z` ``"},
		{"text beside code stays", `<pre>see this: <code>x</code> and that</pre>`, "```\nsee this: x and that\n```"},
		{"table", `<table><thead><tr><th>A</th><th style="text-align: right">B|C</th></tr></thead><tbody><tr><td>1</td><td>a<br>b</td></tr><tr><td><p>x</p><p>y</p></td></tr></tbody></table>`,
			"| A | B\\|C |\n| --- | ---: |\n| 1 | a<br>b |\n| x<br>y |"},
		{"links", `<p><a href="https://x.y/a_b" target="_new">l_k</a> <a href="https://x.y">https://x.y</a> <a href="javascript:x()">j</a> <a href="/a b(c)" title="t">u</a></p>`,
			"[l_k](https://x.y/a_b) https://x.y j [u](</a b(c)> \"t\")"},
		{"images", `<p><img src="a.png" alt="A"><img src="data:image/png;base64,AAAA" alt="inline"></p>`, "![A](a.png)inline"},
		{"raised and lowered", `<p>10<sup>9</sup> H<sub>2</sub>O</p>`, "10<sup>9</sup> H<sub>2</sub>O"},
		{"formula", `<p>So <span class="math math-inline"><span class="katex"><span class="katex-mathml"><math><semantics><mrow><mi>E</mi><mo>=</mo></mrow><annotation encoding="application/x-tex">E=mc^2</annotation></semantics></math></span><span class="katex-html" aria-hidden="true"><span>E</span>=mc2</span></span></span>.</p>`, "So $E=mc^2$."},
		{"task list", `<ul><li><input type="checkbox" checked disabled>done</li><li><input type="checkbox">open</li></ul>`, "- [x] done\n- [ ] open"},
		{"what is no element is text", `<p>#include <stdio.h> and vector<int> x</p>`, "#include <stdio.h> and vector<int> x"},
		{"tags spoken of without an end", `<p>the <script> and <button> elements</p>`, "the <script> and <button> elements"},
		{"scripts and styles go", `<p>a</p><style>p{}</style><script>x<y</script><p>b</p>`, "a\n\nb"},
		{"comments go, processing instructions stay", `<p>a<!-- b --> <?php echo 1; ?></p>`, "a <?php echo 1; ?>"},
		{"a tag without an end stays", `<p>a</p><p>b <x`, "a\n\nb <x"},
		{"markdown shown as it is", "<p>Run:<br>```sh<br>ls  -l<br>```</p>", "Run:\n```sh\nls  -l\n```"},
		{"white space kept by style", "<div class=\"whitespace-pre-wrap\">a\n    b\n\nc</div>", "a\n    b\n\nc"},
		{"nothing", `<div><p> </p><br></div>`, ""},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, toMarkdown(c.in)) })
	}
}

func TestDetection(t *testing.T) {
	for _, c := range []struct {
		name, user, text string
		want             bool
	}{
		{"the page's element", "q", chatDiv + `<p>a</p></div>`, true},
		{"the page's element behind other text", "q", "1 / 1\n" + chatDiv + `<p>a</p></div>`, true},
		{"the page's element, whatever was asked", "write html", chatDiv + `<p>a</p></div>`, true},
		{"the page's element without its end", "q", chatDiv + `<p>a`, true},
		{"the page's element in a fence", "q", "See:\n```html\n" + chatDiv + "<p>a</p></div>\n```", false},
		{"the page's element in a line of code", "q", "The tag `" + chatDiv + "` is what you look for.", false},
		{"blocks", "q", "<p>a</p>\n<ul>\n<li>b</li>\n</ul>", true},
		{"one block", "q", "<p>a</p>", true},
		{"blocks with a link", "q", `<p>a <a href="x" rel="nofollow">b</a></p>`, true},
		{"text and blocks", "q", "Follow these steps:</p>\n<ol><li><p>a</p></li></ol><p>b</p>", true},
		{"blocks, asked for", "Make an HTML list", "<ul><li>a</li></ul>", false},
		{"blocks, asked for by example", "Mend <b>this</b>", "<p>a</p><p>b</p>", false},
		{"a page", "q", "<html><body><p>a</p></body></html>", false},
		{"a component", "q", `<div class="card"><p>a</p></div>`, false},
		{"a form", "q", `<p>a</p><form><input></form>`, false},
		{"a style", "q", `<p style="color:red">a</p>`, false},
		{"unsound", "q", "<p>a<ul></p></ul>", false},
		{"never closed", "q", "<p>a<p>b", false},
		{"a tag spoken of", "q", "Use the <p> tag and close it with </p>.", false},
		{"tags spoken of", "q", "Write <p>a</p> for a paragraph.", false},
		{"tags in a fence", "q", "So:\n```html\n<p>a</p>\n<p>b</p>\n```", false},
		{"tags in code within a line", "q", "Write `<p>a</p>` and `<p>b</p>`.", false},
		{"emphasis in Markdown", "q", "It is <b>324</b> metres.", false},
		{"breaks in Markdown", "q", "a<br>\nb<br>", false},
		{"generics", "q", "<T>(x: T) => x</T>", false},
		{"comparison", "q", "if a < b and c > d", false},
		{"quotation", "q", "<3", false},
		{"empty", "q", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := chat(c.user, c.text)
			clean := newCleaner(t, specstream.CleanSpec{HTML: true})
			if err := clean.Clean(&r); err != nil {
				t.Fatal(err)
			}
			if c.want {
				require.Equal(t, ChangedHTML, r.Changed[0])
			} else {
				require.Empty(t, r.Changed)
				require.Equal(t, c.text, r.Turns[1].Text)
			}
			require.Equal(t, c.user, r.Turns[0].Text, "user turns are left alone")
		})
	}
}

// TestHostileHTML: time and memory stay in proportion to the text.
func TestHostileHTML(t *testing.T) {
	n := 1 << 16
	if testing.Short() {
		n = 1 << 12
	}
	for name, in := range map[string]string{
		"deep":                 strings.Repeat("<div>", n) + "x",
		"deep quotes":          strings.Repeat("<blockquote>", n) + strings.Repeat("a<br>", n),
		"deep lists":           strings.Repeat("<ul><li>", n) + strings.Repeat("a<br>", n),
		"formatting re-opened": "<div>" + formatting(200) + "</div>" + strings.Repeat("<div>x</div>", n),
		"buttons without ends": strings.Repeat("<button>", n) + "</p>",
		"buttons, one end":     strings.Repeat("<button>", n) + "</button>",
		"scripts without ends": strings.Repeat("<script>", n),
		"a wide row":           "<table><tr>" + strings.Repeat("<td>", n) + strings.Repeat("<tr><td>", n),
		"nested tables":        strings.Repeat("<table><tr><td>", n) + "x",
		"attributes":           "<p " + strings.Repeat("a=1 ", n) + ">x",
		"open tag":             "<p>x " + strings.Repeat("<a ", n),
		"ends without starts":  strings.Repeat("</div></p></b>", n),
		"emphasis":             strings.Repeat("<b><i>", n) + "x",
		"code":                 strings.Repeat("<pre><code>", n) + strings.Repeat("`", n),
		"formulas":             strings.Repeat("<math>", n) + "x",
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			begin := time.Now()
			out := toMarkdown(in)
			took := time.Since(begin)
			runtime.ReadMemStats(&after)
			require.LessOrEqual(t, len(out), 200*len(in))
			require.Less(t, took, 20*time.Second) // far above what it takes, far below what growth with the square would
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2<<30))
			isMarkup(in)
		})
	}
}

func formatting(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("<b a=" + strings.Repeat("x", i) + ">")
	}
	return b.String()
}

func FuzzMarkdown(f *testing.F) {
	for _, s := range []string{chatDiv + "<p>a</p></div>", "<pre><code class=\"language-go\">x</code></pre>", "<ul><li>a<ul><li>b", "<table><tr><td>a|b<tr>", "<a href=\"x y\">b</a>",
		"<p>x<br>```\n</p>", "<math><semantics><annotation>x", "<svg><path></svg>", "<script>x</script>", "&lt;p&gt;", "<b> <i> x", "<ol start=\"-1\"><li>x", "<!--x--><!DOCTYPE html><?x?>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		out := toMarkdown(in)
		if strings.TrimSpace(out) != strings.TrimLeft(out, " \t\n\r\f\v\u0085\u00a0") && strings.HasSuffix(out, "\n") {
			t.Fatalf("%q ends in a line break", out)
		}
		if len(out) > 300*(len(in)+1) {
			t.Fatalf("%d bytes became %d", len(in), len(out))
		}
		if again := toMarkdown(in); again != out {
			t.Fatalf("%q, then %q", out, again)
		}
		// Cleaning what was cleaned changes nothing, unless the text shows HTML.
		r := chat("q", in)
		c := &Cleaner{}
		c.spec.HTML = true
		if err := c.Clean(&r); err != nil {
			return
		}
		once := r.Turns[1].Text
		if isChatMarkup(once) || isMarkup(once) {
			return
		}
		r.Changed = nil
		if err := c.Clean(&r); err != nil || len(r.Changed) > 0 || r.Turns[1].Text != once {
			t.Fatalf("%q became %q, %v, %v", once, r.Turns[1].Text, r.Changed, err)
		}
	})
}
