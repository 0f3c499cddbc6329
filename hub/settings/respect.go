package settings

import "strings"

// readRespect reads how agents leave out kinds that they may not list (CLU-12).
func (s *set) readRespect(_ string, t text) error {
	how := strings.TrimSpace(t.value)
	if err := (node{}).among(how, "strict", "normal", ""); err != nil {
		return err
	}
	s.out.RespectRbac = how
	return nil
}
