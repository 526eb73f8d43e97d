from gradientmail.report.markup import Markup, element, joined

SCRIPT = "<script>alert('1')</script>"


def test_text_is_escaped_and_elements_are_not() -> None:
    assert element("p", SCRIPT) == "<p>&lt;script&gt;alert(&#x27;1&#x27;)&lt;/script&gt;</p>"
    assert element("p", element("b", "a & b")) == "<p><b>a &amp; b</b></p>"


def test_attributes_cannot_end_their_quotes() -> None:
    assert element("a", title='"><b>') == '<a title="&quot;&gt;&lt;b&gt;"></a>'


def test_names_of_attributes_are_written_as_html_has_them() -> None:
    assert element("i", class_="x", aria_label="y", hidden=True, title=None, open=False, x=0.125, y=3) == (
        '<i class="x" aria-label="y" hidden x="0.125" y="3"></i>'
    )


def test_void_elements_have_no_end() -> None:
    assert element("meta", name="a", content="b") == '<meta name="a" content="b">'


def test_joining_escapes_what_is_no_markup() -> None:
    whole = joined(["<", element("br"), ">"])
    assert whole == "&lt;<br>&gt;"
    assert isinstance(whole, Markup)
