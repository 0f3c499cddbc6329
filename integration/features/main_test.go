package main

import (
	"os"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/integration/testlog"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	list, err := readCatalogue(strings.NewReader("id,area,title\nDIR-01,Directories,one\nDIR-02,Directories,two\nENG-01,Engine,three\n"))
	if err != nil {
		t.Fatal(err)
	}
	v := judge(list, []testlog.Test{
		{Name: "TestA/DIR-01_reads_all", Result: "pass"},
		{Name: "TestB/DIR-02_fails_here", Result: "fail"},
		{Name: "TestC/DIR-02_but_not_here", Result: "pass"},
		{Name: "TestD/ENG-01_is_skipped", Result: "skip"},
		{Name: "TestE/DIR-99_is_mistyped", Result: "pass"},
		{Name: "TestF/ISO-10_is_another_list", Result: "pass"},
		{Name: "TestG/UTF-8 and XDIR-01", Result: "pass"},
	})
	for id, want := range map[string]bool{"DIR-01": true, "DIR-02": false, "ENG-01": false} {
		if v.covered(id) != want {
			t.Errorf("%s is covered: %t, want %t", id, v.covered(id), want)
		}
	}
	var out strings.Builder
	err = v.print(&out, false)
	if err == nil || !strings.Contains(err.Error(), "DIR-99") || strings.Contains(err.Error(), "ISO-10") {
		t.Errorf("print() error %v, want one that names only DIR-99", err)
	}
	if !strings.Contains(out.String(), "1 of 3 behaviours") || !strings.Contains(out.String(), "  1 / 2   DIR: Directories\n      DIR-01\n") {
		t.Errorf("print() wrote\n%s", out.String())
	}
}

func TestReadCatalogueRefusesWhatIsNoCatalogue(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"Empty":     "",
		"NoHeading": "DIR-01,Directories,one\n",
		"Twice":     "id,area,title\nDIR-01,D,one\nDIR-01,D,two\n",
		"NoID":      "id,area,title\ndir 1,D,one\n",
		"NoTitle":   "id,area,title\nDIR-01,D,\n",
		"TooShort":  "id,area,title\nDIR-01,D\n",
	} {
		if _, err := readCatalogue(strings.NewReader(text)); err == nil {
			t.Errorf("%s: it was accepted", name)
		}
	}
}

func TestTheCatalogueIsWhole(t *testing.T) {
	t.Parallel()
	f, err := os.Open("../../docs/features.csv")
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
	f, err := os.Open("../../docs/features.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list, err := readCatalogue(f)
	if err != nil {
		t.Fatal(err)
	}
	others, err := openDifferences("../../docs/differences.csv", list)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	judge(list, []testlog.Test{{Name: "TestA/" + others[0].id + "_instead", Result: "pass"}}).printDifferences(&out, others)
	if !strings.Contains(out.String(), "1 of them with a passing test") || strings.Count(out.String(), "(no passing test)") != len(others)-1 {
		t.Errorf("printDifferences() wrote\n%s", out.String())
	}
}

func TestReadDifferencesRefuses(t *testing.T) {
	t.Parallel()
	list := []feature{{"DIFF-01", "Differences", "one"}}
	for name, text := range map[string]string{
		"NoHeading":      "DIFF-01,0018,a,b\n",
		"UnknownID":      "id,decision,instead,why\nDIFF-99,0018,a,b\n",
		"NoReason":       "id,decision,instead,why\nDIFF-01,0018,a,\n",
		"NoDecision":     "id,decision,instead,why\nDIFF-01,9999,a,b\n",
		"DecisionSilent": "id,decision,instead,why\nDIFF-01,0001,a,b\n",
		"Twice":          "id,decision,instead,why\nDIFF-01,0018,a,b\nDIFF-01,0018,a,b\n",
	} {
		if _, err := readDifferences(strings.NewReader(text), list, "../../docs/decisions"); err == nil {
			t.Errorf("%s: it was accepted", name)
		}
	}
}
