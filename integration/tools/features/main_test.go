package main

import (
	"os"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/integration/tools/testlog"
)

func TestMatch(t *testing.T) {
	t.Parallel()
	list, err := readCatalogue(strings.NewReader(`id,area,title,semantics,missing
DIR-01,Directories,one,s,
DIR-02,Directories,two,s,
DIR-03,Directories,three,s,links
DIR-04,Directories,four,s,
ENG-01,Engine,five,s,
ENG-02,Engine,six,s,waves
`))
	if err != nil {
		t.Fatal(err)
	}
	v := match(list, []testlog.Test{
		{Name: "TestA/DIR-01_reads_all", Result: "pass"},
		{Name: "TestB/DIR-02_fails_here", Result: "fail"},
		{Name: "TestC/DIR-02_but_not_here", Result: "pass"},
		{Name: "TestC/DIR-03_reads_some", Result: "pass"},
		{Name: "TestC/DIR-03(refused)_refuses_others", Result: "pass"},
		{Name: "TestC/DIR-04(refused)_is_not_served", Result: "pass"},
		{Name: "TestD/ENG-01_is_skipped", Result: "skip"},
		{Name: "TestD/ENG-01(part)_without_saying_what_is_missing", Result: "pass"},
		{Name: "TestD/ENG-02(part)_DIR-01_two_in_one", Result: "pass"},
		{Name: "TestE/DIR-99_is_mistyped", Result: "pass"},
		{Name: "TestE/DIR-01(partly)_is_mistyped", Result: "pass"},
		{Name: "TestF/ISO-10_is_another_list", Result: "pass"},
		{Name: "TestG/UTF-8 and XDIR-01", Result: "pass"},
	})
	for id, want := range map[string]status{"DIR-01": whole, "DIR-02": untested, "DIR-03": partial, "DIR-04": refused, "ENG-01": untested, "ENG-02": partial} {
		if got := v.status(id); got != want {
			t.Errorf("status(%s) = %d, want %d", id, got, want)
		}
	}
	var out strings.Builder
	err = v.print(&out, false)
	if err == nil || strings.Contains(err.Error(), "ISO-10") {
		t.Errorf("print() error %v, want none of other lists", err)
	}
	for _, want := range []string{"DIR-99", "DIR-01(partly)", "ENG-01(part)"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("print() error %v, want one that names %s", err, want)
		}
	}
	for _, want := range []string{
		"1 of 6 behaviours have a passing test for all of them, 2 for a part; 1 are refused",
		"  1 / 4   DIR: Directories (1 in part, 1 refused)\n      DIR-01 DIR-03(part) DIR-04(refused)\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("print() wrote\n%s, want %q", out.String(), want)
		}
	}
	out.Reset()
	_ = v.print(&out, true)
	for _, want := range []string{"DIR-02 two (its test fails)", "DIR-03 three (in part; missing: links)", "DIR-04 four (refused)", "ENG-01 five\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("print(missing) wrote\n%s, want %q", out.String(), want)
		}
	}
}

func TestReadCatalogueRefusesWhatIsNoCatalogue(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"Empty":       "",
		"NoHeading":   "DIR-01,Directories,one,s,\n",
		"Twice":       "id,area,title,semantics,missing\nDIR-01,D,one,s,\nDIR-01,D,two,s,\n",
		"NoID":        "id,area,title,semantics,missing\ndir 1,D,one,s,\n",
		"NoTitle":     "id,area,title,semantics,missing\nDIR-01,D,,s,\n",
		"NoSemantics": "id,area,title,semantics,missing\nDIR-01,D,one,,\n",
		"TooShort":    "id,area,title,semantics,missing\nDIR-01,D,one,s\n",
	} {
		if _, err := readCatalogue(strings.NewReader(text)); err == nil {
			t.Errorf("%s: it was accepted", name)
		}
	}
}

func TestTheCatalogueIsWhole(t *testing.T) {
	t.Parallel()
	f, err := os.Open("../../../docs/features.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list, err := readCatalogue(f)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 667 {
		t.Errorf("it has %d behaviours, want 667", len(list))
	}
	for i, f := range list[1:] {
		if before := list[i]; prefix(before.id) == prefix(f.id) && before.area != f.area {
			t.Errorf("%s is in area %q, %s in %q", before.id, before.area, f.id, f.area)
		}
	}
}

// Every behaviour that is another one on purpose is one of the catalogue, has
// a reason, and the page of a decision that names it.
func TestDifferencesHaveDecisions(t *testing.T) {
	t.Parallel()
	f, err := os.Open("../../../docs/features.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list, err := readCatalogue(f)
	if err != nil {
		t.Fatal(err)
	}
	others, err := openDifferences("../../../docs/differences.csv", list)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	match(list, []testlog.Test{{Name: "TestA/" + others[0].id + "_instead", Result: "pass"}}).printDifferences(&out, others)
	if !strings.Contains(out.String(), "1 of them with a passing test") || strings.Count(out.String(), "(no passing test)") != len(others)-1 {
		t.Errorf("printDifferences() wrote\n%s", out.String())
	}
}

func TestReadDifferencesRefuses(t *testing.T) {
	t.Parallel()
	list := []feature{{id: "DIFF-01", area: "Differences", title: "one", semantics: "s"}}
	for name, text := range map[string]string{
		"NoHeading":      "DIFF-01,0018,a,b\n",
		"UnknownID":      "id,decision,instead,why\nDIFF-99,0018,a,b\n",
		"NoReason":       "id,decision,instead,why\nDIFF-01,0018,a,\n",
		"NoDecision":     "id,decision,instead,why\nDIFF-01,9999,a,b\n",
		"DecisionSilent": "id,decision,instead,why\nDIFF-01,0001,a,b\n",
		"Twice":          "id,decision,instead,why\nDIFF-01,0018,a,b\nDIFF-01,0018,a,b\n",
	} {
		if _, err := readDifferences(strings.NewReader(text), list, "../../../docs/decisions"); err == nil {
			t.Errorf("%s: it was accepted", name)
		}
	}
}
