package repourl

import "testing"

func TestPlace(t *testing.T) {
	t.Parallel()
	for _, addresses := range [][]string{
		{"https://github.com/Org/Repo.git", "git@github.com:org/repo.git", "ssh://git@github.com:22/org/repo"},
		{"https://git.example.com:3000/team/App", "ssh://deploy@git.example.com:2222/team/App.git", "git@git.example.com:team/App"},
		{"https://[2001:db8::1]:8443/a", "ssh://[2001:db8::1]/a"},
	} {
		places := map[string]bool{}
		for _, a := range addresses {
			url, err := Normalize(a)
			if err != nil {
				t.Fatal(err)
			}
			places[Place(url)] = true
		}
		if len(places) != 1 {
			t.Errorf("HOOKW-04 %v are at %v", addresses, places)
		}
	}
	for in, want := range map[string]string{
		"git@github.com:a/b": "", "ssh://deploy@host/a": "deploy", "deploy@host:a/b": "deploy", "https://bob@host/a": "", "host:a": "", "ssh://host/a": "",
	} {
		if got := SSHUser(in); got != want {
			t.Errorf("SSHUser(%q) = %q, want %q", in, got, want)
		}
	}
}
