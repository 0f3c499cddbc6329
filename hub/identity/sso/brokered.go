package sso

import "github.com/capstan-cd/capstan/hub"

// brokered builds the connectors of dex.config.
func (s *Service) brokered(hub.SignInSettings) []provider { return nil }
