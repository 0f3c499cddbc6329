// Package corpus compares what the hub renders with what the command lines of
// Helm and Kustomize print for the same plain checkout, object by object.
//
// testdata has one archive per chart and overlay. The head of an archive says
// what it shows, where the source's path is, and the source's settings. With
// CAPSTAN_CORPUS=DIR the charts below a folder of the machine are compared too.
package corpus
