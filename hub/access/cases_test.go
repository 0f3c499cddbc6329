//go:build !soak

package access

// How many random policies TestIndexEqualsEnforce makes, and what it asks of each.
const randomPolicies, questionsEach = 12_500, 8 // 100,000 decisions
